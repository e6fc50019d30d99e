"""What can be said of a program without running it: its syntax, its function, its names.

Each check gives a value in [0, 1] and the characters of the text it doubts.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

from s3dlm.answers.code import Program, attempt, parse, required
from s3dlm.verifier.code_examples import examples

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_MODULE = {"__name__", "__doc__", "__file__", "__builtins__", "__annotations__"}


@dataclass(frozen=True, slots=True)
class Finding:
    """How good one aspect looks, and where it does not."""

    value: float
    spans: tuple[Span, ...] = ()


def parses(program: Program, text: str) -> Finding:
    """1 when all of the code parses; else half of the share of lines that does."""
    if program.whole:
        return Finding(1.0)
    line, column = _error(program, text)
    start = program.position(line, column) if line else None
    if start is None:
        return Finding(0.5 * program.share)
    return Finding(0.5 * program.share, (_to_line_end(text, start),))


def _error(program: Program, text: str) -> tuple[int, int]:
    """Where the whole of the written code, not just the part kept, first fails to parse."""
    lines = program.source.split("\n")[: program.given]
    for start, added in zip(program.starts, program.added, strict=True):
        line = text[slice(*_to_line_end(text, start))].rstrip("\r")
        lines.append(" " * added + line if added > 0 else line[-added:])
    tree = attempt("\n".join(lines) + "\n")
    return (0, 0) if isinstance(tree, ast.Module) else tree


def _to_line_end(text: str, start: int) -> Span:
    """From a place to the end of its line: at least one character where there is one."""
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    return (start, end) if end > start else (max(start - 1, 0), start)


def written(program: Program, line: int, text: str) -> Span | None:
    """The characters of a line of the program, without its indentation; None: not of this text."""
    start = program.position(line)
    if start is None:
        return None
    first, last = _to_line_end(text, start)
    return last - len(text[first:last].lstrip()), last


def signature(program: Program, tree: ast.Module, question: str) -> Finding:
    """1 for the required function with its parameters, ½ if it takes as many, 0 if it is not there."""
    wanted = required(question)
    function = find(tree, wanted.name)
    if function is None:
        return Finding(0.0)
    asked = find(parse(f"{wanted.head.rstrip()}\n    pass\n"), wanted.name) if wanted.head else None
    names = [one.arg for one in function.args.args]
    if asked is not None and names == [one.arg for one in asked.args.args]:
        return Finding(1.0)
    count = len(asked.args.args) if asked is not None else _arguments(question, wanted.name)
    if count is None or _takes(function, count):
        return Finding(0.5 if asked is not None else 1.0)
    start = program.place(function)
    return Finding(0.0, () if start is None else ((start, start + len(f"def {function.name}")),))


def find(tree: ast.Module | None, name: str) -> Function | None:
    """The last definition of a function at the top of a program; of any, if no name is given."""
    found = None
    for node in tree.body if tree else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in ("", node.name):
            found = node
    return found


def _takes(function: Function, count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    given = function.args
    most = len(given.posonlyargs) + len(given.args)
    needed = sum(default is None for default in given.kw_defaults)
    least = most - len(given.defaults)
    return least <= count and (count <= most or given.vararg is not None) and not needed


def _arguments(question: str, name: str) -> int | None:
    """How many arguments the question's examples give."""
    for example in examples(question):
        for node in ast.walk(ast.parse(example.expression)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                return len(node.args)
    return None


def names(program: Program, tree: ast.Module) -> Finding:
    """1 when every name is defined; each undefined one halves it."""
    unknown = undefined(program.source, tree)
    if unknown is None:
        return Finding(0.0)
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in unknown:
            start = program.place(node)
            if start is not None:
                spans.append((start, start + len(node.id)))
    return Finding(0.5 ** len(unknown), tuple(sorted(spans)))


def undefined(source: str, tree: ast.Module) -> set[str] | None:
    """Names that are read somewhere and defined nowhere; None if the scopes make no sense."""
    if any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)
    ):
        return set()
    try:
        tables = list(_tables(symtable.symtable(source, "<candidate>", "exec")))
    except (SyntaxError, ValueError, RecursionError):
        return None
    top = tables[0]
    known = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    known |= {one.get_name() for one in top.get_symbols() if one.is_namespace()} | _MODULE
    used = set()
    for table in tables:
        for one in table.get_symbols():
            if one.is_declared_global() and one.is_assigned():
                known.add(one.get_name())
            elif one.is_referenced() and (table is top or one.is_global()):
                used.add(one.get_name())
    return {name for name in used - known if not hasattr(builtins, name)}


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
