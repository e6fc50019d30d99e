"""What a re-masking move hides."""

from __future__ import annotations

import numpy as np

from s3dlm.search.moves import HIDINGS, Text


def text(doubted: list[int], length: int = 20) -> Text:
    where = np.isin(np.arange(length), doubted)
    return Text(np.arange(length), np.zeros(length), np.ones(length, dtype=np.bool_), where)


def test_doubted_hides_all_that_is_doubted_where_the_share_allows_it() -> None:
    hidden = HIDINGS["doubted"](text([2, 3, 9]), 0.5, np.random.default_rng(0))
    assert hidden.nonzero()[0].tolist() == [2, 3, 9]


def test_doubted_hides_some_of_it_where_it_is_more_than_the_share_allows() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        hidden = HIDINGS["doubted"](text([2, 3, 9, 15]), 0.05, rng).nonzero()[0].tolist()
        assert 1 <= len(hidden) <= 2
        assert set(hidden) <= {2, 3, 9, 15}
        seen.update(hidden)
    assert seen == {2, 3, 9, 15}
