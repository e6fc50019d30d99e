"""From what a model wrote to the answer it gave, as written, by kind of answer; None when it gave none."""

from __future__ import annotations

import re

from s3dlm.answers import delimiters, expressions
from s3dlm.answers.grids import ORDERS

_LETTER = re.compile(r"(?<![A-Za-z0-9\\'’])([A-H])(?![A-Za-z0-9'’])")
_LONE_LETTER = re.compile(r"[\s(\[*{$]*(?:\\text\s*\{\s*\(?)?([A-Ha-h])[\s)\]*}$.,:]*", re.ASCII)
_NAMED_LETTER = re.compile(
    r"(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Cc]hoose)\s{0,3}(?:is\s{0,3})?[(*\[]{0,3}([A-H])(?![A-Za-z])"
)
_OPTION = re.compile(r"^\s{0,8}\(?([A-H])[.):]\s{1,8}(.{1,300})$", re.MULTILINE)
_EXPRESSION_RUN = re.compile(r"[0-9(](?:[0-9+*/().×·÷−–-]|[ \t](?![ \t]))*+")
_CELLS = re.compile(r"[0-9.](?:[\s|,;+_\-]{0,40}[0-9.])*+")


def content(text: str, question: str) -> str | None:
    """As delimited; of a box that was never closed or filled, what stands in it."""
    found = delimiters.find(text)
    content = found.content.removeprefix("\\boxed{") if found else ""
    return content if content.strip(" .…}") else None


def number(text: str, question: str) -> str | None:
    """The first delimited answer with a digit in it, or else the last number of the text."""
    found = delimiters.find_number(text)
    return found.content if found else None


def choice(text: str, question: str) -> str | None:
    """The letter of an option, named or given by its text."""
    if found := delimiters.find(text):
        content = found.content
        if len(content) < 40 and (lone := _LONE_LETTER.fullmatch(content)):
            return lone[1].upper()
        if letter := _LETTER.search(content):
            return letter[1]
        # The letter whose text was given instead of it, when just one option reads so.
        wanted = _bare(content)
        letters = [letter for letter, option in options_of(question) if _bare(option) == wanted]
        if wanted and len(letters) == 1:
            return letters[0]
    if named := _NAMED_LETTER.findall(text[-delimiters.MAX_ANSWER :]):
        return str(named[-1])
    lone = _LONE_LETTER.fullmatch(text[-40:].rpartition("\n")[2])  # the last line
    return lone[1] if lone and lone[1].isupper() else None


def options_of(question: str) -> list[tuple[str, str]]:
    """The letters and texts of a question's options."""
    return [(match[1], match[2]) for match in _OPTION.finditer(question)]


def _bare(text: str) -> str:
    return re.sub(r"\\text|[^a-z0-9.]+", "", text.lower()).strip(".")


def expression(text: str, question: str) -> str | None:
    """The expression in the delimited answer."""
    found = delimiters.find(text)
    written = expression_in(found.content) if found else None
    return written[0] if written else None


def expression_in(content: str) -> tuple[str, expressions.Expression] | None:
    """The expression in a delimited answer: of `a + b = c` the side that has operators."""
    plain = expressions.ascii_signs(content[: expressions.MAX_LENGTH])
    for side in plain.split("=", 4)[:4]:
        parsed = expressions.parse(side)
        if parsed is not None and len(parsed.postfix) > 1:
            return side.strip(), parsed
    return last_expression(plain)


def last_expression(text: str) -> tuple[str, expressions.Expression] | None:
    """The last run of characters in a text that can be evaluated and has an operator."""
    tail = expressions.ascii_signs(text[-delimiters.MAX_ANSWER :])
    for run in reversed(_EXPRESSION_RUN.findall(tail)[-20:]):
        run = run.strip(" \t.")
        parsed = expressions.parse(run)
        if parsed is not None and len(parsed.postfix) > 1:
            return run, parsed
    return None


def grid(text: str, question: str) -> str | None:
    """The delimited digits, or else the last run of digits that is a whole grid."""
    found = delimiters.find_tagged(text) or delimiters.find_boxed(text)
    if found and (cells := cells_in(found.content)):
        return cells
    start = text.rfind("<answer>")
    if start >= 0 and (cells := cells_in(text[start + 8 : start + 8 + delimiters.MAX_ANSWER])):
        return cells
    whole = [run for run in re.findall(r"[0-9]+", text) if len(run) in ORDERS]
    return str(whole[-1]) if whole else None


def cells_in(content: str) -> str | None:
    """The cells of a grid written with or without spaces, bars and line breaks."""
    runs = _CELLS.findall(content[: delimiters.MAX_ANSWER])
    if not runs:
        return None
    return re.sub(r"[^0-9.]", "", max(runs, key=len)).replace(".", "0")
