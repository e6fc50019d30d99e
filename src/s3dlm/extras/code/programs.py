"""From what a model wrote to a program that can be run; docs/appendix/code.md states every step.

Published HumanEval numbers differ most by this post-processing, so it is one function, `program`,
and verifier and grading both use it. Nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
import codeop
import re
import threading
import warnings
from dataclasses import dataclass
from functools import lru_cache

from s3dlm.answers.delimiters import END_TOKENS

LONGEST_CODE = 20_000  # characters of a text that are read
_TRIES = 40  # cuts before the search for the longest part that parses is given up
_INDENT = "    "
_FENCE = re.compile(r"^[ \t]{0,8}(?:```|~~~)[^\n]*$", re.MULTILINE)
_HEADER = re.compile(r"^(?:async )?def ([A-Za-z_]\w*)\s*\(", re.MULTILINE)
_ASSERT = re.compile(r"^[ \t]{0,8}assert\b[^\n]*$", re.MULTILINE)
_CODE_LINE = re.compile(
    r"(?:from \S+ import |import \w|(?:async )?def \w|class \w|@\w|[A-Z_]+\s*=)"
)
_KEPT = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign,
    ast.AnnAssign,
)  # fmt: skip
Definition = ast.FunctionDef | ast.AsyncFunctionDef
_parsing = threading.Lock()  # warning filters are global to the process


@dataclass(frozen=True, slots=True)
class Required:
    """The function a question asks for, as far as the question says."""

    name: str = ""
    before: str = ""  # imports and helpers that stand before it in the question
    head: str = ""  # its header and docstring; empty: the question gives no code

    @property
    def stub(self) -> Definition | None:
        """Its header as a function without a body."""
        return definition(tree_of(f"{self.head.rstrip()}\n{_INDENT}pass\n"), self.name)


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and how its lines map to the characters of the text it was written in."""

    source: str
    attempted: str  # the question's lines and all that were written, also those that do not parse
    whole: bool  # whether all of the code could be parsed
    share: float  # of the code's lines that could be parsed
    given: int  # lines in front that come from the question
    starts: tuple[int, ...]  # where the other lines begin in the text
    added: tuple[int, ...]  # spaces put in front of each of them

    def place(self, node: ast.expr | ast.stmt) -> int | None:
        """The character of the text where a node begins; trees count columns in bytes."""
        line = self.source.split("\n")[node.lineno - 1].encode()
        return self.position(node.lineno, len(line[: node.col_offset].decode(errors="ignore")))

    def position(self, line: int, column: int = 0) -> int | None:
        """The character of the text at a line (from 1) and column of the program."""
        index = line - 1 - self.given
        if not 0 <= index < len(self.starts):
            return None
        return self.starts[index] + max(column - self.added[index], 0)


def tree_of(source: str) -> ast.Module | None:
    """The syntax tree, or None."""
    tree = tree_or_place(source)
    return tree if isinstance(tree, ast.Module) else None


def tree_or_place(source: str) -> ast.Module | tuple[int, int]:
    """The syntax tree, or line (from 1) and column (from 0) of the first error.

    A text can also be too deep or too odd for the parser; then there is no place, and it is (0, 0).
    """
    try:
        return _tree(source)
    except SyntaxError as error:
        return error.lineno or 0, max((error.offset or 1) - 1, 0)


def may_go_on(source: str) -> bool:
    """Whether it parses, or would with more lines behind it."""
    goes_on = codeop.PyCF_ALLOW_INCOMPLETE_INPUT | codeop.PyCF_DONT_IMPLY_DEDENT  # type: ignore[attr-defined]
    try:
        _tree(source, goes_on)
    except SyntaxError as error:
        return "incomplete input" in str(error)
    return True


def _tree(source: str, flags: int = 0) -> ast.Module:
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree: ast.Module = compile(source, "<candidate>", "exec", ast.PyCF_ONLY_AST | flags)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError("too deep or too odd for the parser") from error
    return tree


@lru_cache(maxsize=64)
def required(question: str) -> Required:
    """A question is code that ends in a function's head, or prose with asserts that call it."""
    pieces = _FENCE.split(question)  # the first fenced one that holds a function's header counts
    fenced = (piece.strip("\n") for piece in pieces[1::2] if _HEADER.search(piece))
    code = next(fenced, "") or question
    headers = list(_HEADER.finditer(code))
    if headers:
        last = headers[-1]
        if tree_of(f"{code.rstrip()}\n{_INDENT}pass\n") is not None:
            return Required(last[1], code[: last.start()], code[last.start() :].rstrip() + "\n")
        return Required(last[1])
    for line in _ASSERT.findall(question):
        if name := called(line.strip()):
            return Required(name)
    return Required()


def called(code: str) -> str:
    """The first function called in a line of code that is not a built-in one.

    If all are (MBPP asks for a function `sum`), it is the outermost.
    """
    tree = tree_of(code)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    names = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    return next((name for name in names if not hasattr(builtins, name)), "".join(names[:1]))


def definition(tree: ast.Module | None, name: str) -> Definition | None:
    """The last definition of a function at the top of a program; of any, if no name is given."""
    for node in reversed(tree.body if tree else []):
        if isinstance(node, Definition) and name in ("", node.name):
            return node
    return None


def source_in(text: str, question: str = "") -> str | None:
    """The program a text gives for a question, or None."""
    found = program(text, question)
    return found.source if found else None


def canonical(source: str) -> str:
    """One spelling for programs that differ in layout, comments and docstrings only."""
    tree = tree_of(source)
    if tree is None:
        return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        match body:
            case [ast.Expr(value=ast.Constant(value=str())), _, *_]:
                del body[0]  # a docstring
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):
        return source


@lru_cache(maxsize=64)  # prompts and texts may be long
def program(text: str, question: str = "") -> Program | None:
    """The program of a text, by the steps that docs/appendix/code.md numbers; None when there is no code."""
    wanted = required(question)
    start, end = _segment(text, wanted.name)
    if not text[start:end].strip():
        return None
    header = _definition(wanted.name, text, start, end)
    lines = _lines(text, start, end)
    if header is None and wanted.head:
        return _completed(wanted, _body(lines))
    lines = _from_first_code_line(lines, header)
    return _completed(Required(wanted.name, wanted.before), lines) if lines else None


@dataclass(frozen=True, slots=True)
class _Line:
    start: int  # in the text
    text: str
    added: int = 0

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())

    @property
    def written(self) -> str:
        return " " * self.added + self.text if self.added > 0 else self.text[-self.added :]


def _segment(text: str, name: str) -> tuple[int, int]:
    """Steps 1 and 2: what stands before an end token, and in it the piece that holds the code."""
    stops = [text.find(token) for token in (*END_TOKENS, "[DONE]")]
    end = min([LONGEST_CODE, len(text), *(stop for stop in stops if stop >= 0)])
    begin = text.find("[BEGIN]", 0, end)
    start = begin + len("[BEGIN]") if begin >= 0 else 0
    marks = [match.span() for match in _FENCE.finditer(text, start, end)]
    edges = [start, *(edge for mark in marks for edge in mark), end]
    pieces = list(zip(edges[::2], edges[1::2], strict=True))
    inside, outside = pieces[1::2], pieces[::2]
    for piece in (*inside, *outside):
        if _definition(name, text, *piece) is not None:
            return piece
    filled = [piece for piece in (*inside, *outside) if text[slice(*piece)].strip()]
    return filled[0] if filled else (start, start)


def _definition(name: str, text: str, start: int, end: int) -> int | None:
    """Where the required function (any function, if none is named) is defined."""
    wanted = re.escape(name) if name else r"\w+"
    pattern = re.compile(rf"^[ \t]*(?:async )?def {wanted}\b", re.MULTILINE)
    match = pattern.search(text, start, end)
    return match.start() if match else None


def _lines(text: str, start: int, end: int) -> list[_Line]:
    lines = []
    for line in text[start:end].split("\n"):
        lines.append(_Line(start, line.rstrip("\r")))
        start += len(line) + 1
    return lines


def _from_first_code_line(lines: list[_Line], header: int | None) -> list[_Line]:
    """Step 3: chatter in front goes, and so does the indentation of the whole."""
    margin = 0
    if header is not None:
        margin = next(line.indent for line in lines if header <= line.start + len(line.text))
    lines = [_Line(line.start, line.text, -min(margin, line.indent)) for line in lines]
    last = next((i for i, line in enumerate(lines) if line.start >= (header or 0)), 0)
    first = [i for i, line in enumerate(lines) if _CODE_LINE.match(line.text, -line.added)]
    for index in first[:_TRIES]:
        before = [line.written for line in lines[index:last]]
        before.append("def stub(): pass")  # a decorator needs one
        if index >= last or tree_of("\n".join(before)) is not None:
            return lines[index:]
    return lines[last:] if header is not None else []


def _body(lines: list[_Line]) -> list[_Line]:
    """Step 4: a body without its header; the first line may have lost its indentation."""
    while lines and not lines[0].text.strip():
        lines = lines[1:]
    indents = [line.indent for line in lines[1:] if line.text.strip()]
    first = lines[0].indent
    if first == 0 and not (indents and min(indents) >= len(_INDENT)):
        return [_Line(line.start, line.text, len(_INDENT)) for line in lines]
    body = [_Line(lines[0].start, lines[0].text, 0 if first else len(_INDENT))]
    for line in lines[1:]:
        if line.text.strip() and not line.text[0].isspace():
            break  # the function is over
        body.append(line)
    return body


def _completed(wanted: Required, lines: list[_Line]) -> Program | None:
    """Steps 5 and 6: the question's code in front, the longest part that parses, its definitions."""
    front = f"{wanted.before}{wanted.head}"
    given = front.rstrip("\n").split("\n") if front else []
    written = [line.written for line in lines]
    tree, kept = _longest(given, written)
    used = [*given, *written[:kept]]
    if tree is not None:
        for node in tree.body:
            if not isinstance(node, _KEPT) and node.lineno > len(given):
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    used[number] = ""  # an example or a print; line numbers stay
    last = max((i + 1 for i, line in enumerate(written) if line.strip()), default=0)
    return Program(
        source="\n".join(used).rstrip() + "\n",
        attempted="\n".join([*given, *written]) + "\n",
        whole=tree is not None and kept >= last,
        share=kept / last if last and tree is not None else 0.0,
        given=len(given),
        starts=tuple(line.start for line in lines),
        added=tuple(line.added for line in lines),
    )


def _longest(given: list[str], written: list[str]) -> tuple[ast.Module | None, int]:
    """The tree of the longest run of lines that parses, and how many written lines are in it."""
    kept = len(written)
    for _ in range(_TRIES):
        tree = tree_or_place("\n".join([*given, *written[:kept]]) + "\n")
        if isinstance(tree, ast.Module):
            return tree, kept
        line = tree[0] - len(given)
        kept = min(kept - 1, line - 1) if line > 1 else kept - 1
        if kept <= 0:
            break
    return None, len(written)
