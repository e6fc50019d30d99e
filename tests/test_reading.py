"""What a canvas says: its text, its text with holes, and which positions count."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from s3dlm.diffusion.blocks import TextReader
from s3dlm.job import Job, prepare
from s3dlm.settings import Settings
from s3dlm.verifier import HOLE
from tests.fakes import ByteTokenizer, fake_model

MASK, END = 256, 257


def decode(ids: list[int]) -> str:
    """Bytes as tokens, so that a character may be cut in half; the mask reads as nothing."""
    return bytes(token for token in ids if token < 256).decode(errors="replace")


def canvas(*parts: bytes | int) -> np.ndarray:
    return np.array([t for part in parts for t in ([part] if isinstance(part, int) else part)])


READER = TextReader(decode, MASK, np.array([END]))
SPELLS_MASKS = TextReader(ByteTokenizer().decode, MASK, np.array([END]))
EURO = "€".encode()  # three bytes


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (canvas(b"ab", MASK, b"c"), f"ab{HOLE}c"),
        (canvas(EURO, MASK, EURO), f"€{HOLE}€"),
        (canvas(b"ab", END, MASK, b"c"), "ab"),
        (canvas(MASK, b"b", END), f"{HOLE}b"),
        (canvas(b"abc"), "abc"),
        (canvas(b"a", EURO[:1]), "a\ufffd"),
    ],
    ids=str,
)
@pytest.mark.parametrize("reader", [READER, SPELLS_MASKS], ids=["nothing", "spelled out"])
def test_a_partial_text_has_a_hole_for_every_unknown_token(
    reader: TextReader, tokens: np.ndarray, text: str
) -> None:
    """Whether or not the tokenizer spells masks out."""
    assert reader.read_partial(tokens) == text


def test_a_text_ends_before_its_end_token_or_what_is_not_known() -> None:
    for tokens in (canvas(b"ab", END, b"c"), canvas(b"ab", MASK, b"c"), canvas(b"ab")):
        assert (READER.read(tokens), READER.length(tokens)) == ("ab", 2)
    short = TextReader(decode, MASK, np.array([END]), answer_length=1)
    assert (short.read(canvas(b"ab")), short.read_partial(canvas(b"ab"))) == ("a", "a")
    assert short.counted(canvas(b"ab")[None]).tolist() == [[True, False]]


def test_what_counts_is_all_up_to_the_first_end_or_the_holes() -> None:
    rows = np.array([[1, END, 2, END], [END, 1, 2, 3], [1, 2, 3, 4]])
    counted = [[True, True, False, False], [True, False, False, False], [True] * 4]
    assert READER.counted(rows).tolist() == counted
    infilling = TextReader(decode, MASK, np.array([END]), given=np.array([1, MASK, MASK, 4]))
    assert infilling.counted(rows).tolist() == [[False, True, True, False]] * 3
    assert infilling.filled(canvas(b"abcd")) == ("bc",)
    endless = TextReader(decode, MASK, np.empty(0, np.int64), given=canvas(b"a", MASK, END))
    assert endless.read_partial(canvas(b"a", END, MASK)).endswith(HOLE)  # it has no end of its own
    assert READER.filled(canvas(b"abcd")) == ()
    assert infilling.keeps_given(np.array([1, 7, 8, 4]))
    assert not infilling.keeps_given(np.array([2, 7, 8, 4]))
    assert not infilling.keeps_given(np.array([1, 7, 8]))


def test_a_text_is_complete_with_its_end_or_its_length() -> None:
    assert READER.keeps_given(canvas(b"ab"))
    assert READER.keeps_given(canvas(b"ab", END, MASK))
    assert not READER.keeps_given(canvas(b"ab", MASK))


def test_what_stands_behind_a_complete_answer_is_filled_and_never_before() -> None:
    """The last block of a block-causal model may reach beyond the length that was asked for."""
    settings = Settings("baseline", gen_length=8, steps=4, block_length=8)
    process: Any = prepare(fake_model(), Job("why?", settings=settings)).process
    process = dataclasses.replace(
        process, reader=dataclasses.replace(process.reader, answer_length=4)
    )
    tokens = np.array([[5, 6, 7, 8, *[MASK] * 4], [5, 6, 7, *[MASK] * 5]])
    process._finish(tokens)
    assert tokens.tolist() == [[5, 6, 7, 8, *[END] * 4], [5, 6, 7, *[MASK] * 5]]
