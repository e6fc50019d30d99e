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

from s3dlm.extras.code.examples import examples
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

# Only their ratios matter.
WEIGHTS: Mapping[str, float] = {
    "parses": 3, "signature": 2, "names": 2, "examples": 9, "confidence": 1,
}  # fmt: skip
PROGRAM_SECONDS = 1.0  # for all examples of one program
PROGRAMS_KEPT = 512  # texts, and programs with what they returned
# Code, not what is said of it.
_BEGUN = re.compile(r"^[ \t]*(?:async )?def |\A[ \t]+\S", re.MULTILINE)
_MODULE = {"__name__", "__doc__", "__file__", "__builtins__", "__annotations__"}


class Finding(NamedTuple):
    """How good one aspect looks, in [0, 1], and the suspicious characters of the text."""

    value: float
    spans: tuple[tuple[int, int], ...] = ()


class CodeVerifier(Verifier):
    """Scores programs by their form and the prompt's examples.

    Args:
        sandbox: Where programs run; None: in the one that this process shares.
        seconds: For all examples of one program.
    """

    name = "code"
    compares_texts = True  # each search has calls of its own: a program may take all of its time

    def __init__(self, sandbox: Sandbox | None = None, seconds: float = PROGRAM_SECONDS) -> None:
        self.sandbox, self.seconds = sandbox, seconds
        self.executed = 0  # programs run so far
        self._outcomes = lru_cache(PROGRAMS_KEPT)(self._run)

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The weighted mean of the parts there are, and where the text looks wrong."""
        findings, runnable = read_program(prompt, text)
        if examples(prompt):
            findings = {**findings, "examples": self._examples(prompt, text, runnable)}
        parts = {name: finding.value for name, finding in findings.items()}
        spans = {span for finding in findings.values() for span in finding.spans}
        inside = tuple(sorted((a, b) for a, b in spans if 0 <= a < b <= len(text)))
        if confidence is not None:
            parts["confidence"] = min(max(confidence, 0.0), 1.0)
        total = sum(WEIGHTS[name] * value for name, value in parts.items())
        total /= sum(WEIGHTS[name] for name in parts)
        return Score(min(max(total, 0.0), 1.0), parts, inside)

    def score_partial(self, prompt: str, text: str) -> Score:
        """½ if no further line can make the lines before the first hole parse; nothing is run."""
        known, hole, _ = text.partition(HOLE)
        known = known[: known.rfind("\n") + 1] if hole else known
        written = program(known, prompt) if _BEGUN.search(known) else None
        right = written is None or written.whole or may_go_on(written.attempted)
        return Score(1.0 if right else 0.5, {"parses": 1.0 if right else 0.5})

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        """Many texts at once, so that no other search waits until their programs have ended."""
        return super().score_batch(prompts, texts, confidences)

    def _examples(self, prompt: str, text: str, runnable: Program | None) -> Finding:
        """The share of the prompt's examples that come out right, and the lines that raised."""
        if runnable is None:
            return Finding(0.0)
        results = self._outcomes(prompt, runnable.source)
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

    def _run(self, prompt: str, source: str) -> list[CodeResult]:
        """What becomes of the prompt's examples."""
        check_wanted()
        self.executed += 1
        calls = [example.expression for example in examples(prompt)]
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
