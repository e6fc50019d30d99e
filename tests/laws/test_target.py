"""What each method samples, against distributions that are known exactly."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tests.fuzz import counts
from tests.laws.toy import (
    LENGTH,
    Canvas,
    base_distribution,
    mean_reward,
    mean_rewards,
    reward,
    sample,
    survivors,
    tilted_distribution,
)

LAM = 3.0


def total_variation(runs: list[dict[Canvas, float]], exact: dict[Canvas, float]) -> float:
    mean: Counter[Canvas] = Counter()
    for run in runs:
        for x, share in run.items():
            mean[x] += share / len(runs)
    return 0.5 * sum(abs(mean[x] - exact.get(x, 0.0)) for x in {*mean, *exact})


@counts(700, 4000)
def test_the_baseline_samples_the_base_distribution(count: int) -> None:
    runs, exact = survivors("baseline", count), base_distribution()
    assert sum(exact.values()) == pytest.approx(1)
    rewards = np.array([mean_reward(run) for run in runs])
    expected = sum(reward(x) * p for x, p in exact.items())
    assert abs(rewards.mean() - expected) < 4 * rewards.std() / math.sqrt(len(runs))
    assert total_variation(runs, exact) < 4 / math.sqrt(count)  # there are 81 outcomes


@pytest.mark.parametrize("ess_threshold", [None, 0.7])
def test_twisted_converges_to_the_tilted_target(ess_threshold: float | None) -> None:
    exact = tilted_distribution(LAM)
    target = sum(reward(x) * p for x, p in exact.items())
    errors, bias = [], []
    for particles, runs in ((2, 250), (16, 80), (128, 40)):
        found = survivors(
            "twisted", runs, particles=particles, branching=2, lam=LAM, ess_threshold=ess_threshold
        )
        rewards = np.array([mean_reward(run) for run in found])
        errors.append(float(np.sqrt(np.mean((rewards - target) ** 2))))
        bias.append((abs(rewards.mean() - target), rewards.std() / math.sqrt(runs)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02
    assert bias[2][0] < 4 * bias[2][1] + 2e-3
    assert total_variation(found, exact) < 0.06


def test_s3_is_biased_and_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    """Remark 2 of the paper: weights compound over the steps, so the tilt is stronger than λ."""
    target = sum(reward(x) * p for x, p in tilted_distribution(LAM).items())
    found = survivors("s3", 60, particles=64, branching=2, lam=LAM)
    mean = float(np.mean([mean_reward(run) for run in found]))
    base = sum(reward(x) * p for x, p in base_distribution().items())
    with capsys.disabled():
        print(f"\n  toy: E f under p {base:.3f}, p·exp(λf) {target:.3f}, s3 {mean:.3f} (λ={LAM})")
    assert mean > target + 0.02


def expected_best(budget: int) -> float:
    """E max of K draws from p, exactly: f has few values."""
    mass: Counter[float] = Counter()
    for x, p in base_distribution().items():
        mass[reward(x)] += p
    best, below = 0.0, 0.0
    for value in sorted(mass):
        upto = below + mass[value]
        best += value * (upto**budget - below**budget)
        below = upto
    return best


@pytest.mark.parametrize("budget", [2, 8, 32])
def test_best_of_k_stays_under_its_bound(budget: int) -> None:
    """Remark 1: E max f ≤ E f + σ√(2 ln K), with σ² the sub-Gaussian proxy of f under p."""
    base = base_distribution()
    mean = sum(reward(x) * p for x, p in base.items())
    tilts = np.concatenate([np.linspace(-60, -0.01, 3000), np.linspace(0.01, 60, 3000)])
    moments = sum(p * np.exp(tilts * (reward(x) - mean)) for x, p in base.items())
    proxy = math.sqrt(float(np.max(2 * np.log(moments) / tilts**2)))
    best = [
        max(map(reward, run)) for run in survivors("best_of_k", 200, particles=budget, branching=1)
    ]
    assert np.mean(best) == pytest.approx(expected_best(budget), abs=0.03)
    assert mean < np.mean(best) <= mean + proxy * math.sqrt(2 * math.log(budget))


def test_the_papers_bound_with_the_variance_can_fail() -> None:
    """With σ² the plain variance, as the paper writes it, a skewed f breaks the bound."""
    base = base_distribution()
    mean = sum(reward(x) * p for x, p in base.items())
    sigma = math.sqrt(sum((reward(x) - mean) ** 2 * p for x, p in base.items()))
    assert expected_best(32) > mean + sigma * math.sqrt(2 * math.log(32))


def test_the_log_normaliser_estimates_the_tilts_constant() -> None:
    """Without resampling bias: the product of mean weights of `twisted` estimates E_p[exp(λ(f−f₀))]."""
    exact = sum(p * math.exp(LAM * reward(x)) for x, p in base_distribution().items())
    estimates = []
    for seed in range(100):
        _, steps = sample("twisted", seed, particles=96, branching=2, lam=LAM)
        log_constant = sum(step.log_normaliser for step in steps)
        estimates.append(math.exp(log_constant))
    # every run starts from the same first look-ahead, whose own tilt is divided out
    first = exact / np.mean(estimates)
    tilts = {math.exp(LAM * value / 7) for value in range(8)}
    assert min(abs(first / tilt - 1) for tilt in tilts) < 0.03


def test_hex_is_a_mixture_over_block_lengths() -> None:
    mixture = [
        sum(reward(x) * p for x, p in base_distribution(LENGTH, block_length).items())
        for block_length in (1, 2)
    ]
    found = mean_rewards("hex", 300, particles=2, branching=2, steps=LENGTH)
    assert abs(found.mean() - np.mean(mixture)) < 4 * found.std() / math.sqrt(found.size)
