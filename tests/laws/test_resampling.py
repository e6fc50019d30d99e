"""Laws of resampling, for weights as nasty as floats allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import qmc

from s3dlm.errors import SettingsError
from s3dlm.search.resample import RESAMPLERS, effective_sample_size, normalised, ssp

UNBIASED = sorted(set(RESAMPLERS) - {"top"})

log_weight = st.one_of(
    st.floats(-800, 800),
    st.sampled_from([0.0, -math.inf, -1e-300, math.log(1e-300), 690.0, 1e-16]),
)
log_weights = st.lists(log_weight, min_size=1, max_size=40).filter(
    lambda logs: any(math.isfinite(one) for one in logs)
)


@given(log_weights, st.integers(0, 50), st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_ssp_adds_up_and_rounds_up_or_down(logs: list[float], count: int, seed: int) -> None:
    offspring = ssp(np.array(logs), count, np.random.default_rng(seed))
    expected = count * normalised(logs)
    assert offspring.sum() == count
    assert (offspring >= np.floor(expected - 1e-9)).all()
    assert (offspring <= np.ceil(expected + 1e-9)).all()
    assert (offspring[np.isneginf(logs)] == 0).all()


@pytest.mark.parametrize("name", RESAMPLERS)
@given(logs=log_weights, count=st.integers(0, 50), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_every_resampler_adds_up(name: str, logs: list[float], count: int, seed: int) -> None:
    offspring = RESAMPLERS[name](np.array(logs), count, np.random.default_rng(seed))
    assert offspring.sum() == count
    assert (offspring >= 0).all()
    if name != "top":
        assert (offspring[normalised(logs) == 0] == 0).all()


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize(
    "weights",
    [
        [1, 1, 1, 1],
        [0.05, 0.15, 0.3, 0.5],
        [1, 1e-300, 1, 0],
        [0.26, 0.24, 0.25, 0.125, 0.125],
        [0.999, 0.0005, 0.0005],
    ],
    ids=str,
)
def test_expected_offspring_are_the_marginals(name: str, weights: list[float]) -> None:
    draws, count = 10_000, 3
    rng = np.random.default_rng(7)
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(weights, dtype=float))
    total = sum(RESAMPLERS[name](logs, count, rng) for _ in range(draws))
    expected = count * normalised(logs)
    error = 3.2 * np.sqrt(np.maximum(expected, 1e-12) / draws)  # no scheme varies more than Poisson
    assert (np.abs(total / draws - expected) <= error + 1e-9).all()


class Given:
    """A source of uniforms that are given beforehand, in place of a generator."""

    def __init__(self, uniforms: np.ndarray) -> None:
        self.uniforms = uniforms

    def random(self, count: int) -> np.ndarray:
        return self.uniforms[:count]


@pytest.mark.parametrize(
    ("weights", "count"),
    [
        ([0.3, 0.7], 1),
        ([0.45, 0.35, 0.2], 2),  # fractions 0.9, 0.7, 0.4: all meetings rise
        ([0.1, 0.2, 0.7], 1),  # a drop, then a rise
        ([0.05, 0.15, 0.3, 0.5], 3),
        ([0.26, 0.24, 0.25, 0.125, 0.125], 3),
    ],
    ids=str,
)
def test_ssp_is_unbiased_to_a_thousandth(weights: list[float], count: int) -> None:
    """Without chance: the mean over points that fill the cube of uniforms evenly."""
    grid = qmc.Sobol(len(weights) - 1, scramble=False).random_base2(14)
    total = sum(ssp(np.log(weights), count, Given(row)) for row in grid)  # type: ignore[arg-type]
    np.testing.assert_allclose(total / len(grid), count * np.array(weights), atol=1e-3, rtol=0)


def test_ssp_varies_least() -> None:
    logs = np.log([0.05, 0.15, 0.3, 0.5])
    variance = {
        name: np.var(
            [RESAMPLERS[name](logs, 4, np.random.default_rng(seed)) for seed in range(3000)], axis=0
        ).sum()
        for name in ("ssp", "residual", "multinomial")
    }
    assert variance["ssp"] < variance["residual"] < variance["multinomial"]


@pytest.mark.parametrize(
    "bad", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [], [[0.0]]], ids=str
)
@pytest.mark.parametrize("name", RESAMPLERS)
def test_weights_without_a_meaning_are_an_error(name: str, bad: list[float]) -> None:
    with pytest.raises(SettingsError, match="log-weights"):
        RESAMPLERS[name](np.array(bad), 3, np.random.default_rng(0))


@given(log_weights)
def test_effective_sample_size_is_between_one_and_all(logs: list[float]) -> None:
    assert 1 - 1e-9 <= effective_sample_size(normalised(logs)) <= len(logs) + 1e-9
