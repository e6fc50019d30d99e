"""`adaptive_vote`: samples until the vote is decided, never more than were asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import s3dlm
from s3dlm.search.samples import ahead, needed
from tests.fakes import COUNTDOWN, QUESTION, fake_model, small

USUAL = {"gen_length": 64, "steps": 16, "block_length": 64, "temperature": 1.0}


def run(noise: float = 1.0, texts: tuple[str, ...] = COUNTDOWN, **options: object) -> s3dlm.Result:
    settings = small("adaptive_vote", USUAL, **options)
    return s3dlm.generate(
        fake_model(texts, noise=noise), QUESTION, task="countdown", settings=settings
    )


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0), (1, 0), (4, 0), (5, 3), (40, 30), (800, 700)]
)
def test_the_probability_is_that_of_the_beta_distribution(first: int, second: int) -> None:
    theta = np.random.default_rng(0).beta(first + 1, second + 1, 200_000)
    assert ahead(first, second) == pytest.approx((theta > 0.5).mean(), abs=0.01)


def test_parts_of_votes_count_for_the_second_only() -> None:
    assert ahead(4.9, 0.1) == ahead(4, 1) < ahead(4, 0)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 1), (10, 9)])
def test_no_fewer_samples_could_decide(first: int, second: int) -> None:
    more = needed(first, second, 0.95)
    assert ahead(first + more, second) >= 0.95 > ahead(first + more - 1, second)


def test_samples_that_agree_end_the_vote_after_four() -> None:
    alike = ("<answer>6 * 4</answer>",) * 2
    result = run(0.0, alike, particles=16, branching=2)
    assert (len(result.survivors), result.stopped) == (4, "agreed")
    assert run(0.0, alike, particles=16, decided_at=0.999).votes == 9


@pytest.mark.parametrize("seed", range(6))
def test_a_vote_ends_when_it_is_decided_and_not_before(seed: int) -> None:
    result = run(noise=3.0, particles=12, branching=1, seed=seed, temperature=2.0)
    assert len(result.survivors) <= 12
    counts = Counter(s.answer for s in result.survivors if s.answer is not None)
    first, second = (*sorted(counts.values(), reverse=True), 0, 0)[:2]
    assert (ahead(first, second) >= 0.95) == (result.stopped == "agreed")
    assert result.stopped == "agreed" or len(result.survivors) == 12
    assert result.nfe <= result.settings.most_nfe
