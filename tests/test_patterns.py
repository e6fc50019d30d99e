"""Every regular expression of the package takes linear time, also on text made to hurt it.

Bad input is generated from the pattern itself: for every repetition in it, the shortest text that leads
there, then many times what it repeats, then something that cannot match. What is measured is how time
grows with length, not time itself.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import s3dlm

ROOT = Path(s3dlm.__file__).parent
METHODS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
ANCHORED = {"match", "fullmatch"}
LONGEST, SLOW = 1 << 14, 0.004  # characters; seconds from which on growth can be measured
MEMBERS = ("""\ta0.,-+A(=x*/|{\\$"'%é\n""", "\na0.,-", "0a.- \n")
WORST = 1.6  # the exponent above which growth is not linear; quadratic is 2


@cache
def trees() -> dict[str, ast.Module]:
    names = {
        path: ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in ROOT.rglob("*.py")
    }
    return {
        name.removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()
    }


def patterns() -> Iterator[tuple[str, str, int, frozenset[str]]]:
    """Where each pattern stands, its source and flags, and the methods by which it is used."""
    for name, tree in trees().items():
        if name.endswith((".confine", ".child", "math_worker")) or "lm_eval.tasks" in name:
            continue  # run as scripts, in processes of their own
        used: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(ast.Name("re"), method), args=[ast.Constant(value), *_]
                ):
                    if method in METHODS:
                        yield f"{name}:{node.lineno}", value, 0, frozenset({method})
                case ast.Attribute(ast.Name(owner), method) if method in METHODS:
                    used.setdefault(owner, set()).add(method)
        if "re.compile" in ast.unparse(tree):
            for variable, value in vars(importlib.import_module(name)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    methods = frozenset(used.get(variable, METHODS))
                    yield f"{name}.{variable}", value.pattern, value.flags, methods


def sample(parsed: Any, members: str) -> str:
    """A short text that the parsed pattern matches, or nearly so; of a set the first of `members`."""
    return "".join(_sample(code, value, members) for code, value in parsed)


def _sample(code: Any, value: Any, members: str) -> str:
    if code is op.LITERAL:
        return chr(value)
    if code is op.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if code is op.ANY:
        return "a"
    if code is op.IN:
        return _member(value, members)
    if code is op.BRANCH:
        return sample(value[1][0], members)
    if code in (op.SUBPATTERN, op.ATOMIC_GROUP):
        return sample(value[-1] if code is op.SUBPATTERN else value, members)
    if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return sample(value[2], members) * value[0]
    return ""


def _member(items: Any, members: str) -> str:
    pattern = re.compile(_class(items))
    for char in members:
        if pattern.fullmatch(char):
            return char
    return next(filter(pattern.fullmatch, map(chr, range(0x10000))))


def _class(items: Any) -> str:
    names = {
        op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_DIGIT: r"\d",
        op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
    }  # fmt: skip
    parts = []
    for code, value in items:
        if code is op.NEGATE:
            parts.append("^")
        elif code is op.LITERAL:
            parts.append(re.escape(chr(value)))
        elif code is op.RANGE:
            parts.append(f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}")
        else:
            parts.append(names[value])
    return f"[{''.join(parts)}]"


def pumps(parsed: Any, members: str, before: str = "") -> Iterator[tuple[str, str]]:
    """For every repetition: a text that leads to it, and what it repeats."""
    for code, value in parsed:
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            if body := sample(value[2], members):
                yield before, body
            yield from pumps(value[2], members, before)
        elif code is op.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, members, before)
        elif code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            yield from pumps(value[-1] if code is op.SUBPATTERN else value, members, before)
        before += _sample(code, value, members)


def bad_texts(source: str, flags: int) -> list[Callable[[int], str]]:
    parsed = parser.parse(source, flags)
    found: set[tuple[str, str]] = set()
    for members in MEMBERS:
        leads = set(pumps(parsed, members))
        whole = sample(parsed, members)
        found |= leads | {("", before + body) for before, body in leads} | {("", whole)}
    found.discard(("", ""))
    found |= {("", before) for before, _ in found if before}
    return [
        lambda n, before=before, body=body: before + body * (n // len(body)) + "\x00"
        for before, body in sorted(found)
    ]


def seconds(run: Callable[[str], object], text: str) -> float:
    times: list[float] = []
    while len(times) < 3 and sum(times) < 25 * SLOW:
        started = time.thread_time()
        run(text)
        times.append(time.thread_time() - started)
    return min(times)


def exponent(run: Callable[[str], object], text: Callable[[int], str]) -> float:
    """How time grows with length: 1 is linear, 2 quadratic.

    A bounded repetition is quadratic until its bound is reached, and a busy machine slows one call
    and not another, so what looks bad is measured again on longer texts.
    """
    length = 256
    while length < LONGEST and seconds(run, text(length)) < SLOW:
        length *= 2
    growth, short = math.inf, seconds(run, text(length))
    if short < SLOW:
        return 0.0
    while growth > WORST and short < 12 * SLOW:
        length *= 4
        long = seconds(run, text(length))
        growth, short = min(growth, math.log(long / short) / math.log(4)), long
    return growth


def runs(pattern: re.Pattern[str], methods: frozenset[str]) -> Callable[[str], object]:
    if methods <= ANCHORED:
        return pattern.match if "match" in methods else pattern.fullmatch
    return lambda text: sum(1 for _ in pattern.finditer(text))


FOUND = sorted(set(patterns()), key=lambda found: found[0])


def test_there_are_patterns() -> None:
    assert len(FOUND) > 60


@pytest.mark.parametrize(
    ("where", "source", "flags", "methods"), FOUND, ids=[one[0] for one in FOUND]
)
def test_time_grows_with_length_and_no_faster(
    where: str, source: str, flags: int, methods: frozenset[str]
) -> None:
    run = runs(re.compile(source, flags), methods)
    for text in bad_texts(source, flags):
        growth = exponent(run, text)
        for _ in range(3):  # a busy machine may spoil some attempts
            if growth <= WORST:
                break
            growth = exponent(run, text)
        assert growth <= WORST, f"{where}: {text(60)!r} … takes length^{growth:.1f}"


def test_the_measure_finds_bad_patterns() -> None:
    cubic = r"\s*(?:\.)?\s*$"
    run = runs(re.compile(cubic), frozenset({"search"}))
    assert any(exponent(run, text) > WORST for text in bad_texts(cubic, 0))
