"""Several look-aheads from one forward pass: what is known stays, the best counts, nothing costs more."""

from __future__ import annotations

import numpy as np
import pytest

import s3dlm
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from tests.fakes import MASK, Judge, search

SMALL = {"gen_length": 64, "steps": 16, "block_length": 64, "temperature": 1.5}


def by_hash() -> Judge:
    return Judge(lambda text: sum(text.encode()) % 97 / 97)


def run(verifier: object, **options: object) -> tuple[list[Step], s3dlm.Result]:
    return search(Settings("revise", **{**SMALL, **options}), verifier=verifier)  # type: ignore[arg-type]


def test_more_texts_are_scored_and_no_more_forward_passes_are_made() -> None:
    one, many = by_hash(), by_hash()
    steps, _ = run(one, look_aheads=1, rounds=0)
    more, _ = run(many, look_aheads=8, rounds=0)
    assert len(many.seen) > 2 * len(one.seen)
    assert len(steps) == len(more)
    assert steps[0].start_nfe == more[0].start_nfe == 1


def test_what_is_known_stands_in_every_look_ahead_and_the_best_counts() -> None:
    notes = by_hash()
    steps, result = run(notes, look_aheads=8, rounds=0)
    for step in steps:
        known = step.tokens != MASK
        assert (step.clean[known] == step.tokens[known]).all()
        assert not (step.clean == MASK).any()
    assert result.score == pytest.approx(max(notes.seen.values()), abs=1e-12)
    assert notes.seen[result.text] == result.score


def test_of_equal_ones_the_likeliest_counts() -> None:
    steps, _ = run(Judge(), look_aheads=8, rounds=0)
    plain, _ = run(Judge(), look_aheads=1, rounds=0)
    assert np.array_equal(steps[0].clean[0], plain[0].clean[0])


def test_the_greedy_answer_of_a_budget_is_still_greedy() -> None:
    """With look-aheads it draws texts to look at, and reveals what it would reveal without."""

    def first_round(look_aheads: int) -> list[Step]:
        steps, _ = run(Judge(), look_aheads=look_aheads, budget=60, rounds=1)
        return [step for step in steps if step.round == 0]

    one, many = first_round(1), first_round(8)
    assert len(one) == len(many) == SMALL["steps"]
    for before, after in zip(one, many, strict=True):
        assert np.array_equal(before.tokens, after.tokens)
