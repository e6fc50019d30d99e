"""The verifier of code: cheap checks first, then the examples of the prompt, run in the sandbox.

It sees a prompt and a text and nothing else, so hidden tests cannot reach it. What it learns of a
program it keeps: a search pays once for all texts that hold the same program.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from s3dlm.extras.code.examples import examples, inputs
from s3dlm.extras.code.programs import Program, attempt, may_go_on, parse, program, required
from s3dlm.extras.code.sandbox import CodeResult, Sandbox, shared
from s3dlm.extras.code.sandbox.values import same
from s3dlm.verifier.base import HOLE, Confidences, Score, Spans, Texts, Verifier, check_wanted

WEIGHTS: Mapping[str, float] = {
    "parses": 0.15,
    "signature": 0.10,
    "names": 0.10,
    "examples": 0.45,
    "agreement": 0.15,
    "confidence": 0.05,
}
PROGRAM_SECONDS = 1.0  # for all examples and inputs of one program
REMEMBERED_BYTES = 32 << 20  # bytes of what is known of programs
# Code, not what is said of it.
_BEGUN = re.compile(r"^[ \t]*(?:async )?def |\A[ \t]+\S", re.MULTILINE)
_MODULE = {"__name__", "__doc__", "__file__", "__builtins__", "__annotations__"}

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """How good one aspect looks, in [0, 1], and the suspicious characters of the text."""

    value: float
    spans: tuple[Span, ...] = ()


class _Memory:
    """What is known of texts and programs; what was not asked for longest is forgotten first."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self.entries: OrderedDict[tuple[str | int, ...], tuple[Any, int]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, *key: str | int) -> Any:
        with self.lock:
            if key not in self.entries:
                return None
            self.entries.move_to_end(key)
            return self.entries[key][0]

    def keep(self, value: Any, *key: str | int) -> None:
        size = sum(map(sys.getsizeof, key)) + len(repr(value))
        with self.lock:
            self.size += size - self.entries.pop(key, (None, 0))[1]
            self.entries[key] = value, size
            while self.size > self.most:
                self.size -= self.entries.popitem(last=False)[1][1]


@dataclass(slots=True)
class CodeVerifier(Verifier):
    """Scores programs by their form, the prompt's examples, and agreement with other candidates."""

    sandbox: Sandbox | None = None  # None: the one this process shares
    seconds: float = PROGRAM_SECONDS
    name: str = "code"
    compares_texts: bool = True
    executed: int = 0  # programs run so far
    _memory: _Memory = field(default_factory=lambda: _Memory(REMEMBERED_BYTES))

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
        findings, runnable = self._check(prompt, text)
        if examples(prompt):
            findings = {**findings, "examples": self._examples(prompt, text, runnable)}
        parts = {name: finding.value for name, finding in findings.items()}
        if agreement is not None:
            parts["agreement"] = agreement
        spans = {span for finding in findings.values() for span in finding.spans}
        inside = tuple(sorted((a, b) for a, b in spans if 0 <= a < b <= len(text)))
        return _total(parts, confidence, inside)

    def _examples(self, prompt: str, text: str, runnable: Program | None) -> Finding:
        """The share of the prompt's examples that come out right, and the lines that raised."""
        if runnable is None:
            return Finding(0.0)
        results = self._run(prompt, runnable, 0)
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
        calls = len(inputs(prompt))
        runnables = {text: self._check(prompt, text)[1] for text in texts}
        programs = {runnable.source: runnable for runnable in runnables.values() if runnable}
        if not calls or len(programs) < 2:
            return {}
        results = {source: self._run(prompt, made, calls) for source, made in programs.items()}
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

    def _run(self, prompt: str, runnable: Program, generated: int) -> list[CodeResult]:
        """Outcomes of the prompt's examples, or of the generated inputs; both of one process."""
        count, source, most = len(examples(prompt)), runnable.source, len(inputs(prompt))
        known = (self._memory.get(prompt, source, calls) for calls in (generated, most))
        results: list[CodeResult] | None = next((made for made in known if made is not None), None)
        if results is None:
            check_wanted()
            calls = [example.expression for example in examples(prompt)]
            calls += inputs(prompt)[:generated]
            results = (self.sandbox or shared()).evaluate(source, calls, self.seconds)
            self.executed += 1
            self._memory.keep(results, prompt, source, generated)
        return results[count : count + generated] if generated else results[:count]

    def _check(self, prompt: str, text: str) -> tuple[dict[str, Finding], Program | None]:
        checked: tuple[dict[str, Finding], Program | None] | None = self._memory.get(prompt, text)
        if checked is None:
            checked = read_program(prompt, text)
            self._memory.keep(checked, prompt, text)
        return checked


def _total(parts: dict[str, float], confidence: float | None, spans: Spans) -> Score:
    """The weighted mean of the parts there are."""
    if confidence is not None:
        parts = {**parts, "confidence": min(max(confidence, 0.0), 1.0)}
    total = sum(WEIGHTS[name] * value for name, value in parts.items())
    total /= sum(WEIGHTS[name] for name in parts)
    return Score(min(max(total, 0.0), 1.0), parts, spans)


def _equal(left: CodeResult, right: CodeResult) -> bool:
    try:
        return same(left.value, right.value)
    except (RecursionError, OverflowError, TypeError):  # values come from untrusted code
        return False


def read_program(prompt: str, text: str) -> tuple[dict[str, Finding], Program | None]:
    """What can be said of a text without running it, and its program if that is worth running."""
    findings = {name: Finding(0.0) for name in ("parses", "signature", "names")}
    written = program(text, prompt)
    if written is None:
        return findings, None
    findings["parses"] = _parses(written, text)
    if (tree := parse(written.source)) is None:
        return findings, None
    findings |= {"signature": _signature(written, tree, prompt), "names": _names(written, tree)}
    worth = findings["signature"].value > 0 and findings["names"].value == 1.0
    return findings, written if worth else None


def _parses(written: Program, text: str) -> Finding:
    """1 when all of the code parses; else half of the share of lines that does."""
    if written.whole:
        return Finding(1.0)
    # Where the whole of the written code, not just the part kept, first fails to parse.
    tree = attempt(written.attempted)
    line_number, column = (0, 0) if isinstance(tree, ast.Module) else tree
    place = written.position(line_number, column) if line_number else None
    spans = () if place is None else (_to_line_end(text, place),)
    return Finding(0.5 * written.share, spans)


def _to_line_end(text: str, start: int) -> Span:
    """From a place to the end of its line: at least one character where there is one."""
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    return (start, end) if end > start else (max(start - 1, 0), start)


def _signature(written: Program, tree: ast.Module, question: str) -> Finding:
    """1 for the required function with its parameters, ½ if it takes as many, 0 if it is not there."""
    wanted = required(question)
    function = _function(tree, wanted.name)
    if function is None:
        return Finding(0.0)
    head = parse(f"{wanted.head.rstrip()}\n    pass\n") if wanted.head else None
    stub = _function(head, wanted.name)
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


def _function(tree: ast.Module | None, name: str) -> Function | None:
    """The last definition of a function at the top of a program; of any, if no name is given."""
    for node in reversed(tree.body if tree else []):
        if isinstance(node, Function) and name in ("", node.name):
            return node
    return None


def _takes(function: Function, count: int) -> bool:
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
        tables = [symtable.symtable(written.source, "<candidate>", "exec")]
    except (SyntaxError, ValueError, RecursionError):
        return Finding(0.0)
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
    unknown = {name for name in used - defined - _MODULE if not hasattr(builtins, name)}
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id in unknown]
    starts = ((written.place(node), len(node.id)) for node in names)
    spans = tuple((start, start + length) for start, length in starts if start is not None)
    return Finding(0.5 ** len(unknown), spans)
