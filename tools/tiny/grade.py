"""Strict right-or-wrong for generated problems, independent of the package's own graders."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

from tools.tiny.problems import Problem

_SIGNS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _between(text: str, left: str, right: str) -> str:
    return text.rpartition(left)[2].partition(right)[0].strip() if left in text else ""


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        value: Fraction = _SIGNS[type(node.op)](_value(node.left, used), _value(node.right, used))
        return value
    raise ValueError(ast.dump(node))


def _countdown(answer: str, gold: str) -> bool:
    target, numbers = gold.split("|")
    used: list[int] = []
    try:
        value = _value(ast.parse(answer, mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return False
    return value == int(target) and sorted(used) == sorted(map(int, numbers.split(",")))


def right(problem: Problem, response: str) -> bool:
    """Whether the response answers the problem."""
    if problem.task in ("arithmetic", "chain"):
        return _between(response, "\\boxed{", "}") == problem.gold
    if problem.task == "sudoku":
        return _between(response, "<answer>", "</answer>") == problem.gold
    if problem.task == "choice":
        found = re.search(r"answer is ([A-D])\b", response)
        return found is not None and found.group(1) == problem.gold
    return _countdown(_between(response, "<answer>", "</answer>"), problem.gold)
