r"""Grading as the d1 evaluation does it, quirks kept, so that published figures can be met.

The quirks that matter: GSM8K reads the *first* number of the *first* box, so `1,200` is 1; the
MATH rule takes the whole text for the answer when nothing is boxed, and compares strings;
Countdown sorts every integer it sees; Sudoku counts cells. HEX shares all of it, and adds the
multiple-choice sets by the MATH rule. The rules are restated, not improved: see `grading.py` for ours.
"""

from __future__ import annotations

import re

from s3dlm.answers import expressions

_NUMERAL = re.compile(r"-?[0-9]+\.?[0-9]*")
_EQUATION = re.compile(r"(?<![0-9+\-*/() ])([0-9+\-*/() ]++)=[0-9. ]")
_ALLOWED = re.compile(r"[0-9+\-*/().\s]+")


def gsm8k_number(text: str) -> float | None:
    """The number d1 reads: from the boxes in order, else from the first closed `<answer>`."""
    for content in _boxes(text):
        if content.strip(".") and (value := _float_or(content, first=True)) is not None:
            return value
    content = _between(text, "<answer>", "</answer>")
    return _float_or(content, first=False) if content else None


def _boxes(text: str) -> list[str]:
    """What stands between each `\\boxed{` and the next `}` on its line: braces are not matched."""
    contents, at = [], text.find("\\boxed{")
    while at >= 0:
        close = text.find("}", at + 7)
        if close < 0:
            break
        content = text[at + 7 : close]
        at = text.find("\\boxed{", close if "\n" not in content else at + 7)
        if "\n" not in content:
            contents.append(content.strip())
    return contents


def _float_or(content: str, *, first: bool) -> float | None:
    try:
        return float(content[:400])
    except ValueError:
        numerals = _NUMERAL.findall(content)
    return float(numerals[0 if first else -1]) if numerals else None


def _between(text: str, opening: str, closing: str) -> str:
    start = text.find(opening)
    end = text.find(closing, start + len(opening)) if start >= 0 else -1
    return text[start + len(opening) : end].strip() if end >= 0 else ""


def boxed_or_everything(text: str) -> str:
    r"""The last `\boxed{…}` or `\fbox{…}`; unclosed, the `<answer>`; without one, the whole text."""
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return text
    opening = text.find("{", start)
    depth = 0
    for brace in re.finditer(r"[{}]", text[opening:] if opening >= 0 else ""):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[opening + 1 : opening + brace.start()]
    return _between(text, "<answer>", "</answer>")


def is_equiv(left: str, right: str) -> bool:
    """Equality of two LaTeX strings after the Hendrycks clean-up; plain equality when that fails."""
    try:
        return _clean(left) == _clean(right)
    except (ValueError, IndexError):
        return left == right


def _clean(text: str) -> str:
    text = text.replace("\n", "").replace("\\!", "").replace("\\\\", "\\")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    for token in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$"):
        text = text.replace(token, "")
    if "\\text{ " in text:
        text, _ = text.split("\\text{ ")  # more than one: ValueError, hence plain equality
    text = text.replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = "0" + text if text[0] == "." else text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _with_braced_fracs(_with_braced_roots(text).replace(" ", ""))
    if ratio := re.fullmatch(r"(0|-?[1-9][0-9]{0,18})/(0|-?[1-9][0-9]{0,18})", text):
        return f"\\frac{{{ratio[1]}}}{{{ratio[2]}}}"
    return "\\frac{1}{2}" if text == "0.5" else text


def _with_braced_roots(text: str) -> str:
    head, *rest = text.split("\\sqrt")
    return head + "".join(
        "\\sqrt" + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}") for part in rest
    )


def _with_braced_fracs(text: str) -> str:
    head, *rest = text.split("\\frac")
    parts = [head]
    for part in rest:
        if part[0] != "{" and len(part) < 2:
            return text
        if part[0] != "{":
            below = part[1] if part[1] == "{" else f"{{{part[1]}}}"
            part = f"{{{part[0]}}}{below}{part[2:]}"
        parts.append("\\frac" + part)
    return "".join(parts)


def countdown_right(text: str, numbers: list[int], target: float) -> bool:
    """Every number of the pool exactly once, and the value within 1e-5 of the target: of a box or else
    the whole text, LaTeX operators mapped, `= value` cut off."""
    expression = boxed_or_everything(text) or text
    for latex, sign in expressions.LATEX_SIGNS.items():
        expression = expression.replace(latex, sign)
    if equation := _EQUATION.search(expression):
        expression = equation[1].strip()
    used = re.findall(r"[0-9]+", expression)
    if len(used) != len(numbers) or any(len(numeral) > 18 for numeral in used):
        return False
    if sorted(map(int, used)) != sorted(numbers) or not _ALLOWED.fullmatch(expression):
        return False
    parsed = expressions.parse(expression)
    value = parsed.value() if parsed else None
    return value is not None and abs(value - target) < 1e-5


def puzzle_digits(question: str, size: int = 16) -> str | None:
    """The digits of the puzzle in a question; d1 has sixteen, a 9×9 grid has 81."""
    match = re.search(rf"[0-9]{{{size}}}", question)
    return match[0] if match else None


def _sudoku_text(text: str, size: int) -> str:
    """What d1 takes for the solution: the first of five places that holds anything."""
    opened = text.find("<answer>")
    if opened >= 0:
        fenced = re.search(r"```\s*+([0-9][0-9\s]*+)```", text[opened:])
        if fenced:
            return fenced[1]
        if closed := _until_end(text[opened + 8 :], need_end=True):
            return closed
    closed_at = text.find("</answer>")
    if closed_at >= 0 and (after := _until_end(text[closed_at + 9 :], need_end=False)):
        return after
    before = re.search(rf"([0-9]{{{size}}})\s*+</answer>", text)
    alone = before or re.search(rf"\b([0-9]{{{size}}})\b", text)
    return alone[1] if alone else ""


def _until_end(text: str, *, need_end: bool) -> str:
    end = re.search(r"<\|eot_id\|>|<\|endoftext\|>" + ("|</answer>" if need_end else ""), text)
    if need_end and not end:
        return ""
    return text[: end.start() if end else None].strip()


def sudoku_share(text: str, solution: str, puzzle: str) -> float:
    """The share of originally empty cells that are right; what is missing counts as 0."""
    empty = [i for i, digit in enumerate(puzzle) if digit == "0"]
    cells = "".join(_sudoku_text(text, len(puzzle)).split())
    if not cells or not empty or len(solution) < len(puzzle):
        return 0.0
    return sum(cells[i : i + 1] == solution[i] for i in empty) / len(empty)
