"""Statistics against values known by hand or by definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from s3dlm.evaluation.statistics import (
    Interval,
    bootstrap,
    compare,
    mean_of,
    sign_test,
    wilson,
)


@given(st.integers(0, 300), st.integers(0, 300))
def test_both_are_scipys(wins: int, losses: int) -> None:
    n = wins + losses
    exact = binomtest(wins, n).pvalue if n else 1.0
    assert sign_test(wins, losses) == pytest.approx(exact, rel=1e-9)
    if n:
        low, high = binomtest(wins, n).proportion_ci(method="wilson")
        found = wilson(wins / n, n)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_a_mean_keeps_a_width_where_all_is_right() -> None:
    one = wilson(1.0, 12)
    assert mean_of([one]) == one
    both = mean_of([one, one])
    assert both.high == 1.0
    assert one.low < both.low < 1.0  # more problems, a narrower interval
    assert both.low == pytest.approx(1 - (1 - one.low) / 2**0.5)


def test_bootstrap_is_repeatable_sees_a_clear_difference_and_rarely_cries_wolf() -> None:
    values = np.random.default_rng(1).normal(0.2, 0.5, 400)
    interval, p = bootstrap([values.tolist()])
    assert (interval, p) == bootstrap([values.tolist()])
    assert interval.low < values.mean() < interval.high
    assert p < 0.001
    assert bootstrap([[0.0] * 30])[1] == 1.0
    rng = np.random.default_rng(2)
    false = sum(bootstrap([rng.normal(0, 1, 60).tolist()], 1000)[1] < 0.05 for _ in range(200))
    assert false <= 22  # 5 % of 200 is 10; more than 22 has probability below 0.1 %


def test_compare_counts_problems_not_seeds_and_tasks_equally_whatever_their_size() -> None:
    gaps = [0.5, -0.5, 0.0]
    found = compare([gaps])
    assert (found.problems, found.wins, found.losses, found.difference.value) == (3, 1, 1, 0.0)
    assert compare([[-gap for gap in gaps]]).wins == found.losses
    found = compare([[1.0] * 90, [-1.0] * 10])
    assert (found.problems, found.wins, found.losses) == (100, 90, 10)
    assert (found.difference.value, found.p) == (0.0, 1.0)


def test_a_few_problems_prove_nothing() -> None:
    """The bootstrap alone would call three wins out of three certain."""
    found = compare([[1.0] * 3])
    assert found.difference == Interval(1.0, 1.0, 1.0)
    assert math.isnan(found.p)
    assert compare([[1.0] * 5 + [0.0] * 5]).p == pytest.approx(2 / 2**5)  # the sign test's
