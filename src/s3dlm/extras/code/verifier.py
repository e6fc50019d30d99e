"""The verifier of code: cheap checks first, then the examples of the prompt, run in the sandbox.

It sees a prompt and a text and nothing else, so hidden tests cannot reach it. What it learns of a
program it keeps: a search pays once for all texts that hold the same program.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from s3dlm.extras.code.examples import examples, inputs
from s3dlm.extras.code.programs import (
    Definition,
    Program,
    definition,
    may_go_on,
    program,
    required,
    tree_of,
    tree_or_place,
)
from s3dlm.extras.code.sandbox import CodeResult, Sandbox, shared
from s3dlm.extras.code.sandbox.values import equal_values
from s3dlm.verifier.base import HOLE, Confidences, Score, Texts, Verifier, check_wanted

WEIGHTS: Mapping[str, float] = {
    "parses": 0.15,
    "signature": 0.10,
    "names": 0.10,
    "examples": 0.45,
    "agreement": 0.15,
    "confidence": 0.05,
}
PROGRAM_SECONDS = 1.0  # for all examples and inputs of one program
PROGRAMS_KEPT = 512  # texts, and programs with what they returned
# Code, not what is said of it.
_BEGUN = re.compile(r"^[ \t]*(?:async )?def |\A[ \t]+\S", re.MULTILINE)
_MODULE = {"__name__", "__doc__", "__file__", "__builtins__", "__annotations__"}


class Finding(NamedTuple):
    """How good one aspect looks, in [0, 1], and the suspicious characters of the text."""

    value: float
    spans: tuple[tuple[int, int], ...] = ()


class CodeVerifier(Verifier):
    """Scores programs by their form, the prompt's examples, and agreement with other candidates.

    Args:
        sandbox: Where programs run; None: in the one that this process shares.
        seconds: For all examples and inputs of one program.
    """

    name, compares_texts = "code", True

    def __init__(self, sandbox: Sandbox | None = None, seconds: float = PROGRAM_SECONDS) -> None:
        self.sandbox, self.seconds = sandbox, seconds
        self.executed = 0  # programs run so far
        self._outcomes = lru_cache(PROGRAMS_KEPT)(self._run)

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """One text; there is no other to agree with, so that part is left out."""
        return self._score(prompt, text, confidence, None)

    def score_partial(self, prompt: str, text: str) -> Score:
        """½ if no further line can make the lines before the first hole parse; nothing is run."""
        known, hole, _ = text.partition(HOLE)
        known = known[: known.rfind("\n") + 1] if hole else known
        written = program(known, prompt) if _BEGUN.search(known) else None
        right = written is None or written.whole or may_go_on(written.attempted)
        return Score(1.0 if right else 0.5, {"parses": 1.0 if right else 0.5})

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        """Many texts; those of one prompt are also compared with each other on generated inputs."""
        rows = list(zip(prompts, texts, confidences, strict=True))
        agreement = {
            prompt: self._agreement(prompt, [row[1] for row in rows if row[0] == prompt])
            for prompt in set(prompts)
        }
        return [self._score(*row, agreement[row[0]].get(row[1])) for row in rows]

    def _score(
        self, prompt: str, text: str, confidence: float | None, agreement: float | None
    ) -> Score:
        findings, runnable = read_program(prompt, text)
        if examples(prompt):
            findings = {**findings, "examples": self._examples(prompt, text, runnable)}
        parts = {name: finding.value for name, finding in findings.items()}
        if agreement is not None:
            parts["agreement"] = agreement
        spans = {span for finding in findings.values() for span in finding.spans}
        inside = tuple(sorted((a, b) for a, b in spans if 0 <= a < b <= len(text)))
        if confidence is not None:
            parts["confidence"] = min(max(confidence, 0.0), 1.0)
        total = sum(WEIGHTS[name] * value for name, value in parts.items())
        total /= sum(WEIGHTS[name] for name in parts)  # the weighted mean of the parts there are
        return Score(min(max(total, 0.0), 1.0), parts, inside)

    def _examples(self, prompt: str, text: str, runnable: Program | None) -> Finding:
        """The share of the prompt's examples that come out right, and the lines that raised."""
        if runnable is None:
            return Finding(0.0)
        results = self._outcomes(prompt, runnable.source)[: len(examples(prompt))]
        right = [
            result.ok and _equal(result, CodeResult(example.expected))
            for result, example in zip(results, examples(prompt), strict=True)
        ]
        spans = []
        for line in {result.line for result in results if result.line}:
            if (start := runnable.position(line)) is not None:
                first, last = _to_line_end(text, start)
                spans.append((last - len(text[first:last].lstrip()), last))
        return Finding(sum(right) / len(right), tuple(spans))

    def _agreement(self, prompt: str, texts: list[str]) -> dict[str, float]:
        """For each text the mean share of other programs with the same result, over the inputs."""
        shown, runnables = len(examples(prompt)), {t: read_program(prompt, t)[1] for t in texts}
        sources = dict.fromkeys(made.source for made in runnables.values() if made)
        if not inputs(prompt) or len(sources) < 2:
            return {}
        results = {source: self._outcomes(prompt, source)[shown:] for source in sources}
        shares: dict[str, float] = {}
        for source, own in results.items():
            agree = [
                result.ok and other.ok and _equal(result, other)
                for other_source, others in results.items()
                if other_source != source
                for result, other in zip(own, others, strict=True)
            ]
            # Errors agree with nobody, and neither does a function that only ever returns None.
            silent = all(result.value is None for result in own)
            shares[source] = 0.0 if silent else sum(agree) / len(agree)
        return {text: shares[made.source] if made else 0.0 for text, made in runnables.items()}

    def _run(self, prompt: str, source: str) -> list[CodeResult]:
        """What becomes of the prompt's examples, and then of the generated inputs."""
        check_wanted()
        self.executed += 1
        calls = [*(example.expression for example in examples(prompt)), *inputs(prompt)]
        return (self.sandbox or shared()).evaluate(source, calls, self.seconds)


def _equal(left: CodeResult, right: CodeResult) -> bool:
    try:
        return equal_values(left.value, right.value)
    except (RecursionError, OverflowError, TypeError):  # values come from untrusted code
        return False


@lru_cache(PROGRAMS_KEPT)
def read_program(prompt: str, text: str) -> tuple[dict[str, Finding], Program | None]:
    """What can be said of a text without running it, and its program if that is worth running."""
    findings = {name: Finding(0.0) for name in ("parses", "signature", "names")}
    written = program(text, prompt)
    if written is None:
        return findings, None
    findings["parses"] = _parses(written, text)
    if (tree := tree_of(written.source)) is None:
        return findings, None
    findings |= {"signature": _signature(written, tree, prompt), "names": _names(written, tree)}
    worth = findings["signature"].value > 0 and findings["names"].value == 1.0
    return findings, written if worth else None


def _parses(written: Program, text: str) -> Finding:
    """1 when all of the code parses; else half of the share of lines that does."""
    if written.whole:
        return Finding(1.0)
    # Where the whole of the written code, not just the part kept, first fails to parse.
    tree = tree_or_place(written.attempted)
    line_number, column = (0, 0) if isinstance(tree, ast.Module) else tree
    place = written.position(line_number, column) if line_number else None
    spans = () if place is None else (_to_line_end(text, place),)
    return Finding(0.5 * written.share, spans)


def _to_line_end(text: str, start: int) -> tuple[int, int]:
    """From a place to the end of its line: at least one character where there is one."""
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    return (start, end) if end > start else (max(start - 1, 0), start)


def _signature(written: Program, tree: ast.Module, question: str) -> Finding:
    """1 for the required function with its parameters, ½ if it takes as many, 0 if it is not there."""
    wanted = required(question)
    function, stub = definition(tree, wanted.name), wanted.stub
    if function is None:
        return Finding(0.0)
    parameters = [parameter.arg for parameter in function.args.args]
    if stub is not None and parameters == [parameter.arg for parameter in stub.args.args]:
        return Finding(1.0)
    calls = [example.arguments for example in examples(question)]
    shown = next((len(arguments) for arguments in calls if arguments is not None), None)
    count = len(stub.args.args) if stub is not None else shown
    if count is None or _takes(function, count):
        return Finding(0.5 if stub is not None else 1.0)
    start = written.place(function)
    return Finding(0.0, () if start is None else ((start, start + len(f"def {function.name}")),))


def _takes(function: Definition, count: int) -> bool:
    """Whether a function can be called with that many positional arguments."""
    parameters = function.args
    most = len(parameters.posonlyargs) + len(parameters.args)
    if most - len(parameters.defaults) > count or None in parameters.kw_defaults:
        return False
    return count <= most or parameters.vararg is not None


def _names(written: Program, tree: ast.Module) -> Finding:
    """1 when every name is defined; each undefined one halves it; 0 if the scopes make no sense."""
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes):
        return Finding(1.0)
    try:
        unknown = undefined(written.source)
    except (SyntaxError, ValueError, RecursionError):
        return Finding(0.0)
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id in unknown]
    starts = ((written.place(node), len(node.id)) for node in names)
    spans = tuple((start, start + length) for start, length in starts if start is not None)
    return Finding(0.5 ** len(unknown), spans)


def undefined(source: str) -> set[str]:
    """Names that a program uses, and neither it nor Python defines; a SyntaxError or its like where the
    scopes make no sense."""
    tables = [symtable.symtable(source, "<candidate>", "exec")]
    top, used = tables[0], set()
    defined = {
        symbol.get_name()
        for symbol in top.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
            elif symbol.is_referenced() and (table is top or symbol.is_global()):
                used.add(symbol.get_name())
    return {name for name in used - defined - _MODULE if not hasattr(builtins, name)}
