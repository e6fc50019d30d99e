r"""Where in a text the final answer stands: `\boxed{}` ≻ `<answer>` ≻ `####` ≻ "answer is/=/:".

The cascade of the paper's appendix. Extraction, grading and the verifier all read it from here, so
that they can never disagree about what the answer is or where the reasoning before it ends. A
diffusion model fills its whole canvas: a short answer is followed by a run of end tokens, which is
stripped first, or by a next question of the model's own, before which a reader stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from s3dlm.answers.numbers import NUMBER, UNSIGNED, last_number_in

# Scans are bounded so that ten thousand unclosed `\boxed{` cost no more than a few.
MAX_ANSWER = 2000
MAX_TEXT = 100_000  # characters at the end of a text that are read: no honest answer is longer
MAX_TRIES = 4

END_TOKENS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")
MASK_TOKENS = ("<|mdm_mask|>", "<|mask|>")
# The run is matched in the reversed text: there it stands first, so one anchored match finds it.
_RUN_BACKWARDS = re.compile(
    "(?:" + "|".join(re.escape(token[::-1]) for token in END_TOKENS) + r"|\s++)++"
)

# Where a turn ends or a next question begins, by the stop words of the field's harnesses; a line
# `#### 18` ends a solution, as in GSM8K, and is itself kept.
_STOP = re.compile(
    r"<\|(?:endoftext|eot_id|im_end|im_start|start_header_id)\|>|</s>|You are an? (?:AI|helpful) assist"
    r"|\n[ \t*#]{0,8}(?:Question|Q|Problem|Human|User)[ \t*]{0,4}[0-9]{0,4}[ \t*]{0,4}:"
    rf"|(?P<kept>####[ \t]{{0,8}}-?\$?-?{UNSIGNED}(?=[ \t]{{0,8}}(?:\n|\Z)|#|[A-Z][a-z]|[a-z]{{4}}))"
)
_ANSWER_IS = re.compile(r"answer\s{0,8}(?:is\b|=|:)(?:\s{0,8}:)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|[.!?]?</")
_IDLE = frozenset(("", "...", "…", ".", ".."))


class Found(NamedTuple):
    """An answer as written, and where its delimiter starts (the reasoning is all before that)."""

    content: str
    start: int
    delimiter: str


def _found(content: str, start: int, delimiter: str) -> Found | None:
    return None if content in _IDLE else Found(content, start, delimiter)


def strip_end_tokens(text: str) -> str:
    """The text without its trailing run of end tokens and without space around it."""
    if not text.rstrip().endswith("|>"):
        return text.strip()
    run = _RUN_BACKWARDS.match(text[::-1])
    return (text[: len(text) - run.end()] if run else text).strip()


def up_to_stop(text: str) -> str:
    """The text as far as a reader reads it: to the end of the turn, or to a next question."""
    for stop in _STOP.finditer(text):
        if end := stop.end() if stop["kept"] else stop.start():
            return text[:end].rstrip()
    return text


@lru_cache(maxsize=64)  # the parts of a verifier ask for that of the same text
def find(text: str) -> Found | None:
    """The final answer by the cascade; None when there is no delimiter with anything in it."""
    return next(find_each(text), None)


def find_each(text: str) -> Iterator[Found]:
    """What each delimiter of the cascade holds, the first one first."""
    for finder in (find_boxed, find_tagged, find_hashes, find_phrase):
        if found := finder(text):
            yield found


def find_number(text: str) -> Found | None:
    """The first delimited answer with a digit in it, or else the last number of the text, whose delimiter
    is the box that was left open, or nothing."""
    delimited = (found for found in find_each(text) if NUMBER.search(found.content))
    if found := next(delimited, None):
        return found
    if (numeral := last_number_in(text)) is None:
        return None
    start = text.rfind(numeral.lstrip("-"))
    box = text.rfind("boxed{", max(start - 20, 0), start)
    return Found(numeral, start, "") if box < 0 else Found(numeral, max(box - 1, 0), "open")


def find_boxed(text: str) -> Found | None:
    r"""The last closed `\boxed{…}` or `\fbox{…}`, its braces matched."""
    end = len(text)
    for _ in range(MAX_TRIES):
        start = text.rfind("boxed{", 0, end)
        if start < 0:
            return _find_fbox(text)
        close = close_of_brace(text, start + 6)
        if close >= 0:
            content = text[start + 6 : close].strip()
            if content not in _IDLE:
                return Found(content, start - text.startswith("\\", start - 1), "boxed")
        end = start
    return None


def _find_fbox(text: str) -> Found | None:
    start = text.rfind("\\fbox{")
    close = close_of_brace(text, start + 6) if start >= 0 else -1
    return _found(text[start + 6 : close].strip(), start, "boxed") if close >= 0 else None


def close_of_brace(text: str, at: int) -> int:
    """Where the brace opened just before `at` closes, or -1; looks `MAX_ANSWER` characters ahead."""
    limit, depth = at + MAX_ANSWER, 1
    while True:
        close = text.find("}", at, limit)
        if close < 0:
            return -1
        depth += text.count("{", at, close) - 1
        if depth == 0:
            return close
        at = close + 1


def find_tagged(text: str) -> Found | None:
    """The last `<answer>…</answer>`."""
    close = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, close) if close >= 0 else -1
    return _found(text[start + 8 : close].strip(), start, "tag") if start >= 0 else None


def find_hashes(text: str) -> Found | None:
    """What follows the last `####` on its line."""
    start = text.rfind("####")
    line = text[start + 4 : start + 4 + MAX_ANSWER].lstrip().partition("\n")[0]
    return _found(line.strip(), start, "hashes") if start >= 0 else None


def find_phrase(text: str) -> Found | None:
    """What follows the last "answer is", "answer =" or "answer:" up to the end of its sentence."""
    end = len(text)
    for _ in range(MAX_TRIES):
        start = max(text.rfind("answer", 0, end), text.rfind("Answer", 0, end))
        if start < 0:
            return None
        match = _ANSWER_IS.match(text, start)
        rest = text[match.end() : match.end() + MAX_ANSWER].lstrip() if match else ""
        stop = _SENTENCE_END.search(rest)
        content = (rest[: stop.start()] if stop else rest).strip(" \t*_`")
        if content not in _IDLE:
            return Found(content, start, "phrase")
        end = start
    return None
