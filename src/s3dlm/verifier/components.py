"""S1–S5: five views of a text that need no reference answer (the paper's appendix).

Each is one short function of a `ParsedText`, with a value in [0, 1]. Where the paper leaves a number
open, the docstring says what we chose. Of equalities S2 reads only the simple form `a op b = c`, as
the paper says: in `20 - 4 - 4 = 12` nothing is checked, rather than its tail `4 - 4 = 12`.
"""

from __future__ import annotations

import re
from itertools import pairwise

from s3dlm.answers.delimiters import END_TOKENS, MASK_TOKENS
from s3dlm.answers.expressions import LATEX_SIGNS
from s3dlm.answers.kinds import extract
from s3dlm.answers.numbers import NUMBER, UNSIGNED, frac, negative_at, numbers_in, to_float
from s3dlm.verifier.parsed import ParsedText

KEYWORDS = (
    "step", "therefore", "thus", "hence", "compute", "calculate", "subtract", "multipl", "divid",
    "because", "since", "first", "then", "total",
)  # fmt: skip

# The paper's example "3" → 0.25 fixes the density's share; the rest is our split.
KEYWORD_SHARE, DELIMITER_SHARE, DENSITY_SHARE = 0.40, 0.35, 0.25

_SIGNED = re.compile(r"[\s$\\({]*[-−]")
_IN_NUMBER = re.compile(r"[0-9.,]")
_GOES_ON = re.compile(r"[0-9]|[.,][0-9]")
_NEITHER_LETTER_NOR_SPACE = bytes(
    code for code in range(128) if not (chr(code).isalnum() or chr(code).isspace())
)

# Read backwards from an `=`: the right operand, the operator, the left operand.
_BACKWARDS = re.compile(
    r"=\s*+(%?[0-9][0-9.,]*+-?)\s*([-+*/×÷−·xX])\s*+(%?[0-9][0-9.,]*+-?)(\s{0,3}+.)?+", re.DOTALL
)
_RESULT = re.compile(rf"\s*+(-?{UNSIGNED}%?)(\s{{0,3}}+.)?+", re.DOTALL)
_STATED = re.compile(rf"=\s*+(-?{UNSIGNED})")
_FRAC = re.compile(frac(rf"(-?{UNSIGNED})", rf"({UNSIGNED})"))
_LATEX = LATEX_SIGNS | {"\\%": "%", "\\$": "", "\\,": ""}
# What must not stand beside an equality: it would be a piece of something larger.
_JOINED_BEFORE = frozenset("+-*/×÷−·^_)}]")
_JOINED_AFTER = frozenset("+-*/×÷−·^_!({")


def structure(parsed: ParsedText, answered: bool | None = None) -> float:
    """S1 for maths: reasoning keywords, an answer delimiter, and mostly letters and digits."""
    answered = parsed.answer is not None if answered is None else answered
    return (
        KEYWORD_SHARE * keyword_share(parsed.lower, KEYWORDS)
        + DELIMITER_SHARE * answered
        + DENSITY_SHARE * min(density(parsed.text) / 0.5, 1.0)
    )


def structure_of_choice(parsed: ParsedText) -> float:
    """S1 for multiple choice: as for maths, but what must be found is a letter from A to H."""
    return structure(parsed, extract("choice", parsed.text, parsed.prompt) is not None)


def keyword_share(lower: str, keywords: tuple[str, ...]) -> float:
    """min(h / 3, 1) for h distinct keywords."""
    return min(sum(keyword in lower for keyword in keywords), 3) / 3


def density(text: str) -> float:
    """The share of characters that are letters, digits or white space."""
    if not text:
        return 0.0
    if text.isascii():
        return len(text.encode().translate(None, _NEITHER_LETTER_NOR_SPACE)) / len(text)
    return sum(c.isalnum() or c.isspace() for c in text) / len(text)


def arithmetic(parsed: ParsedText) -> float:
    """S2: the share of true equalities, times the share of plausible steps between stated values.

    0.5 when there is no equality to check.
    """
    if "=" not in parsed.text:
        return 0.5
    plain = plain_arithmetic(parsed.text)
    total, verified = count_equalities(plain)
    stated = (to_float(numeral) for numeral in _STATED.findall(plain))
    values = [value for value in stated if value is not None]
    return verified / total * chain_share(values) if total else 0.5


def chain_share(values: list[float]) -> float:
    """The share of neighbours whose magnitudes lie within a factor of a thousand; zeros left out."""
    pairs = [(a, b) for a, b in pairwise(values) if a and b]
    return sum(1e-3 < abs(b / a) < 1e3 for a, b in pairs) / len(pairs) if pairs else 1.0


def plain_arithmetic(text: str) -> str:
    """The text with LaTeX operators as ASCII ones and without currency signs."""
    if "\\" in text:
        for latex, sign in _LATEX.items():
            text = text.replace(latex, sign)
        text = _FRAC.sub(r"\1/\2", text)
    text = text.replace("$", "")
    return text if text.isascii() else text.replace("£", "").replace("€", "")


def count_equalities(plain: str) -> tuple[int, int]:
    """How many simple equalities a plain text holds, and how many of them are true."""
    verdicts = []
    for match in _BACKWARDS.finditer(plain[::-1]):
        result = _RESULT.match(plain, len(plain) - match.start())
        if result is not None and _stands_alone(match, result):
            verdicts.append(_holds(match[2], match[3][::-1], match[1][::-1], result[1]))
    checked = [verdict for verdict in verdicts if verdict is not None]
    return len(checked), sum(checked)


def _stands_alone(operation: re.Match[str], result: re.Match[str]) -> bool:
    """Whether a op b = c is the whole of it: not the tail of a longer sum, not part of a formula."""

    def joins(neighbour: str, signs: frozenset[str]) -> bool:
        # A letter that touches the number is part of a formula ("2x"); a unit after a space is not.
        return neighbour[-1:] in signs or (len(neighbour) == 1 and neighbour.isalpha())

    before, after = operation[4] or "", result[2] or ""
    if operation[3][-1] == "-" and before[-1:].isalnum():
        return False  # "10 -5 + 3": the sign is an operator
    return not (joins(before, _JOINED_BEFORE) or joins(after, _JOINED_AFTER))


def _holds(operator: str, *numerals: str) -> bool | None:
    """Whether a op b = c; a percentage may be meant as a share or as a bare number."""
    has_percent = any("%" in numeral for numeral in numerals)
    values = [to_float(numeral.strip("%.,")) for numeral in numerals]
    numbers = [value for value in values if value is not None]
    if len(numbers) < 3:
        return False if has_percent else None
    units = [100 if numeral[-1] == "%" else 1 for numeral in numerals]
    shares = [value / unit for value, unit in zip(numbers, units, strict=True)]
    return _is_true(operator, *numbers) or (has_percent and _is_true(operator, *shares))


def _is_true(operator: str, a: float, b: float, c: float) -> bool:
    if operator in "/÷":
        return b != 0 and abs(a / b - c) <= max(abs(c) * 1e-6, 1e-4)
    value = a + b if operator == "+" else a - b if operator in "-−" else a * b
    return abs(value - c) <= max(abs(c) * 1e-6, 1e-4)


def reachability(parsed: ParsedText) -> float:
    """S3: 1.0 when the answer already stands in the reasoning before it, 0.3 if not, 0.2 without."""
    answer = parsed.answer
    if answer is None:
        return 0.2
    prefix, content = parsed.text[: answer.start], answer.content
    # The digits of an answer that is one number, whatever sign, currency or unit is around it.
    bare = content.strip(" \n$%\\.-−")
    numeral = NUMBER.match(bare)
    rest = bare[numeral.end() :].lstrip() if numeral else ""
    is_number = not rest or rest.startswith("\\text") or rest[0].isalpha()
    value = to_float(numeral[0]) if numeral and is_number else None
    if numeral is None or value is None:
        return 1.0 if content.lower() in parsed.lower[: answer.start] else 0.3
    negative = _SIGNED.match(content) is not None
    start = prefix.rfind(numeral[0])
    end = start + len(numeral[0])
    # The same spelling, not in the middle of a longer number: no need to read every number.
    alone = start >= 0 and not (start and _IN_NUMBER.match(prefix, start - 1))
    if alone and not _GOES_ON.match(prefix, end) and negative_at(prefix, start) == negative:
        return 1.0
    value = -value if negative else value
    return 1.0 if any(abs(number - value) <= 1e-6 for number in numbers_in(prefix)) else 0.3


def confidence(parsed: ParsedText) -> float:
    """S4: the model's mean token probability, clipped to [0, 1]; 0.5 when it gives none."""
    value = parsed.confidence
    return 0.5 if value is None or value != value else min(max(value, 0.0), 1.0)


def non_degeneracy(parsed: ParsedText) -> float:
    """S5: the paper's cascade against floods of special tokens, stubs and repetition."""
    if "<|" in parsed.text and (flooded := _special_tokens(parsed.text)) is not None:
        return flooded
    words = parsed.text.split()
    if len(words) < 8:
        return 0.2
    # Every distinct word but the last starts a distinct bigram, so a rich vocabulary settles it.
    if len(words) <= 12 or len(set(words)) - 2 >= 0.30 * len(words):
        return 1.0
    bigrams = len(set(pairwise(words))) / (len(words) - 1)
    if bigrams < 0.30:
        return 0.05 if bigrams < 0.15 else 0.3
    trigrams = len(set(zip(words, words[1:], words[2:], strict=False))) / (len(words) - 2)
    return 0.2 if len(words) > 30 and trigrams < 0.25 else 1.0


def _special_tokens(text: str) -> float | None:
    """0.0 for a flood of end tokens inside the text, 0.05 for masks left in it, else None."""
    ends = sum(text.count(token) for token in END_TOKENS)
    masks = sum(text.count(token) for token in MASK_TOKENS)
    if not ends and not masks:
        return None
    for token in END_TOKENS + MASK_TOKENS:
        text = text.replace(token, " ")
    positions = len(text.split()) + ends + masks
    if ends > 0.20 * positions:
        return 0.0
    return 0.05 if masks > 0.15 * positions else None
