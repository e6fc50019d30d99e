"""No canvas is forwarded twice in the search of a prompt, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.job import Job, prepare
from s3dlm.search.methods import METHODS
from s3dlm.search.rounds import MOST_IDLE
from s3dlm.search.step import Memo
from s3dlm.settings import Settings
from tests.fakes import Judge, assert_same_search, events_of, fake_model, search, small

FEW = {"gen_length": 32, "steps": 8, "block_length": 16, "temperature": 0.6, "particles": 2}
ROUNDS: dict[str, Any] = {"rounds": 3, "remask": "random", "remask_fraction": 0.2}


PACE = {"reveal": "threshold", "reveal_threshold": 0.5}


def outcome(settings: Settings) -> s3dlm.Result:
    return search(settings, fake_model(noise=1.0))[1]


@pytest.mark.parametrize(
    ("method", "more", "comes_back"),
    [
        *((method, how, False) for method in METHODS for how in (ROUNDS, {**ROUNDS, **PACE})),
        ("revise", {"rounds": 4}, True),
        ("hex", {}, True),
        ("particle_gibbs", {}, True),
        ("revise", {"rounds": 2, "guidance": 1.0}, True),
        ("mend", {"rounds": 4, "patience": 1}, True),
    ],
    ids=str,
)
def test_what_comes_back_is_not_paid_for_and_nothing_else_changes(
    method: str, more: dict[str, Any], comes_back: bool
) -> None:
    own = {n: v for n, v in more.items() if method != "mend" or n not in ("remask", "rounds")}
    settings = small(method, {**FEW, **(more if comes_back else own)})
    with_memo, without = outcome(settings), outcome(settings.replace(memo=0))
    assert_same_search(with_memo, without)
    assert with_memo.nfe < without.nfe or (not comes_back and with_memo.nfe == without.nfe)


def test_a_search_in_which_nothing_comes_back_keeps_nothing() -> None:
    def capacity(method: str, **values: Any) -> int:
        job = Job("q", settings=Settings(method, **values))
        return prepare(fake_model(), job).run.memo.capacity

    assert capacity("s3") == capacity("baseline") == capacity("s3", budget=64, memo=0) == 0
    assert capacity("s3", reveal="threshold") == capacity("s3", budget=64) == 128 << 20


class Value:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_the_memory_is_bounded_and_what_was_used_last_stays() -> None:
    memo, keys = Memo(100), [bytes([row]) for row in range(12)]
    for row in range(6):
        memo.keep([keys[row]], [Value(30)])
        assert memo.held == sum(value.nbytes for value in memo.kept.values()) <= 100
    known = [value is not None for value in memo.recall(keys)]
    assert np.flatnonzero(known).tolist() == [0, 4, 5]  # where every restart begins, and the last
    memo.recall([keys[4]])
    memo.keep([keys[6]], [Value(30)])
    assert np.flatnonzero([one is not None for one in memo.recall(keys)]).tolist() == [0, 4, 6]
    memo.keep([keys[7]], [Value(101)])  # larger than all there is
    assert memo.recall([keys[7]]) == [None]


@pytest.mark.parametrize("method", ["verified_best_of_k", "adaptive_vote"])
def test_a_search_that_meets_nothing_new_ends_before_its_budget(method: str) -> None:
    """Of a sharp model all texts are equal; a budget of any size is no reason to go on for ever."""
    usual = {"decided_at": 0.9999, "gen_length": 16, "steps": 4, "temperature": 0.01}
    settings = small(method, usual, budget=10**9)
    model, unhappy = fake_model(noise=0.0, push=20.0), Judge(0.1, satisfied_at=1.0)
    *steps, result = events_of(model, "?", settings=settings, verifier=unhappy)
    assert result.nfe < 20
    assert len({step.round for step in steps}) <= MOST_IDLE + 2  # type: ignore[union-attr]
