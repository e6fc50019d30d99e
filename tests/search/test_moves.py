"""What a re-masking move hides."""

from __future__ import annotations

import numpy as np
import pytest

from s3dlm.job import Job, prepare
from s3dlm.search.remask import REMASKINGS, Text
from tests.fakes import END, fake_model


def text(doubted: list[int], length: int = 20) -> Text:
    where = np.isin(np.arange(length), doubted)
    return Text(np.zeros(length), np.ones(length, dtype=np.bool_), where)


def test_doubted_hides_some_of_what_is_doubted_or_all_of_it() -> None:
    rng = np.random.default_rng(0)
    seen = {tuple(REMASKINGS["doubted"](text([2, 9]), 0.5, rng).nonzero()[0]) for _ in range(50)}
    assert seen == {(2,), (9,), (2, 9)}


def test_doubted_hides_no_more_than_the_share_allows() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        hidden = REMASKINGS["doubted"](text([2, 3, 9, 15]), 0.05, rng).nonzero()[0].tolist()
        assert 1 <= len(hidden) <= 2
        assert set(hidden) <= {2, 3, 9, 15}
        seen.update(hidden)
    assert seen == {2, 3, 9, 15}


@pytest.mark.parametrize("text", ["€€€€ 2 + 2 = 5", "6 × 7 = 41", "plain 2 + 2 = 5"])
def test_a_doubt_marks_its_own_characters_whatever_their_bytes(text: str) -> None:
    process = prepare(fake_model(), Job("q")).process
    tokens = np.full(64, END)
    tokens[: len(text.encode())] = list(text.encode())
    start = text.index("2 +" if "2 +" in text else "41")
    _, marked = process.remaskable(tokens, ((start, len(text)),))
    assert bytes(tokens[marked].tolist()).decode() == text[start:]
