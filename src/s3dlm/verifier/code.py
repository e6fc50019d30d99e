"""The verifier of code: cheap checks first, then the examples of the prompt, run in the sandbox.

It sees a prompt and a text and nothing else, so hidden tests cannot reach it. What it learns of a
program it keeps: a search pays once for all texts that hold the same program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from s3dlm.answers.code import Program, parse, program
from s3dlm.sandbox import CodeResult, Sandbox, shared
from s3dlm.sandbox.values import same
from s3dlm.verifier.base import Score, Verifier
from s3dlm.verifier.code_checks import Finding, names, parses, signature, written
from s3dlm.verifier.code_examples import examples, inputs

WEIGHTS: Mapping[str, float] = {
    "parses": 0.15,
    "signature": 0.10,
    "names": 0.10,
    "examples": 0.45,
    "agreement": 0.15,
    "confidence": 0.05,
}
SECONDS = 1.0  # for all examples and inputs of one program
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Read:
    """What the cheap checks found in a text, and the program if it is worth running."""

    found: Mapping[str, Finding]
    runnable: Program | None = None


@dataclass(slots=True)
class CodeVerifier(Verifier):
    """Scores programs by their form, the prompt's examples, and agreement with other candidates."""

    sandbox: Sandbox | None = None  # None: the one this process shares
    seconds: float = SECONDS
    name: str = "code"
    batched: bool = True
    compares_texts: bool = True  # a score depends on the others of its batch
    rescores: bool = True
    executed: int = 0  # programs run so far
    _known: dict[tuple[str, str, int], list[CodeResult]] = field(default_factory=dict)

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """One text; there is no other to agree with, so that part is left out."""
        return self._score(prompt, text, confidence, None)

    def rescore(self, score: Score, confidence: float | None) -> Score:
        """The score of the same text at another confidence."""
        kept = {name: value for name, value in score.parts.items() if name != "confidence"}
        parts = kept | _confidence(confidence)
        return Score(_total(parts), parts, score.spans)

    def score_batch(
        self,
        prompts: Sequence[str],
        texts: Sequence[str],
        confidences: Sequence[float | None],
    ) -> list[Score]:
        """Many texts; those of one prompt are also compared with each other on generated inputs."""
        rows = list(zip(prompts, texts, confidences, strict=True))
        agreement: dict[str, dict[str, float]] = {
            prompt: self._agreement(prompt, [text for p, text, _ in rows if p == prompt])
            for prompt in dict.fromkeys(prompts)
        }
        return [
            self._score(prompt, text, confidence, agreement[prompt].get(text))
            for prompt, text, confidence in rows
        ]

    def _score(
        self, prompt: str, text: str, confidence: float | None, agreement: float | None
    ) -> Score:
        """The parts that apply, and what they doubt."""
        read = _read(prompt, text)
        parts = {name: one.value for name, one in read.found.items()}
        spans = [span for one in read.found.values() for span in one.spans]
        if examples(prompt):
            tried = self._examples(prompt, text, read.runnable)
            parts["examples"], spans = tried.value, [*spans, *tried.spans]
        if agreement is not None:
            parts["agreement"] = agreement
        parts |= _confidence(confidence)
        inside = tuple(sorted({(a, b) for a, b in spans if 0 <= a < b <= len(text)}))
        return Score(_total(parts), parts, inside)

    def _examples(self, prompt: str, text: str, one: Program | None) -> Finding:
        """The share of the prompt's examples that come out right, and the lines that raised."""
        if one is None:
            return Finding(0.0)
        wanted = examples(prompt)
        outcomes = self._run(prompt, one, 0)
        right = [
            outcome.ok and _equal(outcome, CodeResult(example.expected))
            for outcome, example in zip(outcomes, wanted, strict=True)
        ]
        lines = {outcome.line for outcome in outcomes if outcome.line}
        spans = (span for line in lines if (span := written(one, line, text)) is not None)
        return Finding(sum(right) / len(right), tuple(sorted(spans)))

    def _agreement(self, prompt: str, texts: list[str]) -> dict[str, float]:
        """For each text the mean share of other programs with the same result, over the inputs."""
        calls = len(inputs(prompt))
        reads = {text: _read(prompt, text).runnable for text in texts}
        programs = {one.source: one for one in reads.values() if one is not None}
        if not calls or len(programs) < 2:
            return {}
        results = {source: self._run(prompt, one, calls) for source, one in programs.items()}
        shares = {source: _agreeing(source, results) for source in results}
        return {text: shares[one.source] if one else 0.0 for text, one in reads.items()}

    def _run(self, prompt: str, one: Program, generated: int) -> list[CodeResult]:
        """Results of the prompt's examples, or of the generated inputs; both of one process."""
        count = len(examples(prompt))
        key = (prompt, one.source, generated)
        known = self._known.get(key) or self._known.get((prompt, one.source, len(inputs(prompt))))
        if known is None:
            calls = [*(e.expression for e in examples(prompt)), *inputs(prompt)[:generated]]
            known = (self.sandbox or shared()).evaluate(one.source, calls, self.seconds)
            self.executed += 1
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known[count : count + generated] if generated else known[:count]


def _confidence(value: float | None) -> dict[str, float]:
    return {} if value is None else {"confidence": min(max(value, 0.0), 1.0)}


def _total(parts: Mapping[str, float]) -> float:
    """The weighted mean of the parts there are."""
    total = sum(WEIGHTS[name] * value for name, value in parts.items())
    return min(max(total / sum(WEIGHTS[name] for name in parts), 0.0), 1.0)


@lru_cache(maxsize=_REMEMBERED)
def _read(prompt: str, text: str) -> _Read:
    """The checks that need no process; each needs the one before it."""
    found = {name: Finding(0.0) for name in ("parses", "signature", "names")}
    one = program(text, prompt)
    if one is None:
        return _Read(found)
    found["parses"] = parses(one, text)
    tree = parse(one.source)
    if tree is None:
        return _Read(found)
    found["signature"] = signature(one, tree, prompt)
    found["names"] = names(one, tree)
    worth = found["signature"].value > 0 and found["names"].value == 1.0
    return _Read(found, one if worth else None)


def _agreeing(source: str, results: Mapping[str, list[CodeResult]]) -> float:
    """Errors agree with nobody, and neither does a function that only ever returns None."""
    own = results[source]
    if all(outcome.value is None for outcome in own):
        return 0.0
    others = [outcomes for other, outcomes in results.items() if other != source]
    agree = [
        outcome.ok and other[index].ok and _equal(outcome, other[index])
        for index, outcome in enumerate(own)
        for other in others
    ]
    return sum(agree) / len(agree)


def _equal(one: CodeResult, other: CodeResult) -> bool:
    try:
        return same(one.value, other.value)
    except (RecursionError, OverflowError, TypeError):  # values come from untrusted code
        return False
