"""What screening samples, on a model small enough to enumerate.

With K candidates a particle's child is drawn from p(child | parent)·exp(λ·s(child)), as K grows. If exp(λ·s)
is the value function h, which looks ahead exactly, every path then has the probability p·exp(λ·f)/h₀:
screening alone, without weights, samples the tilted target. If it is not, rows that have a target
divide the score out again and still reach it.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from s3dlm.diffusion.blocks import reveals
from s3dlm.settings import Settings
from s3dlm.verifier import HOLE, Score
from tests.laws.test_target import mean_reward, total_variation
from tests.laws.toy import (
    LENGTH,
    MASK,
    STEPS,
    base_distribution,
    children_of,
    reward,
    sample,
    tilted_distribution,
)

LAM = 3.0


def canvas_of(text: str) -> tuple[int, ...]:
    return tuple(MASK if letter == HOLE else int(letter) for letter in text)


@cache
def value(canvas: tuple[int, ...], step: int) -> float:
    """h(canvas) = E[exp(λ·f) | canvas], with this many steps made."""
    if MASK not in canvas:
        return math.exp(LAM * reward(canvas))
    reveal = reveals(LENGTH, STEPS, LENGTH)[step]
    places = range(reveal.start, reveal.stop)
    return sum(p * value(c, step + 1) for c, p in children_of(canvas, places, reveal.count))


class Looks:
    """A verifier of whole texts that also reads partial ones."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(reward(tuple(map(int, text))))


class Exact(Looks):
    """Knows the value function: log h / λ, which lies in [0, 1] as f does."""

    def score_partial(self, prompt: str, text: str) -> Score:
        canvas = canvas_of(text)
        known = LENGTH - canvas.count(MASK)
        made = [sum(r.count for r in reveals(LENGTH, STEPS, LENGTH)[:t]) for t in range(STEPS + 1)]
        total = math.log(value(canvas, made.index(known))) / LAM
        return Score(min(max(total, 0.0), 1.0))


class Rough(Looks):
    """Likes what is wrong: ones instead of twos."""

    def score_partial(self, prompt: str, text: str) -> Score:
        return Score(text.count("1") / LENGTH)


def survivors(
    method: str, runs: int, verifier: object, **options: Any
) -> list[dict[tuple[int, ...], float]]:
    found = []
    for seed in range(runs):
        outcome, _ = sample(method, seed, verifier, **options)
        weight = np.exp(outcome.log_weight - outcome.log_weight.max())
        run: Counter[tuple[int, ...]] = Counter()
        for tokens, share in zip(outcome.canvas.tokens, weight / weight.sum(), strict=True):
            run[tuple(tokens.tolist())] += float(share)
        found.append(dict(run))
    return found


def test_screening_by_the_exact_value_samples_the_tilted_target_by_itself() -> None:
    options = {"particles": 16, "branching": 1, "lam": LAM}
    runs = survivors("best_of_k", 100, Exact(), screen=64, **options)
    exact, base = tilted_distribution(LAM), base_distribution()
    rewards = np.array([mean_reward(run) for run in runs])
    target = sum(reward(x) * p for x, p in exact.items())
    assert abs(rewards.mean() - target) < 4 * rewards.std() / math.sqrt(len(runs)) + 4e-3
    assert total_variation(runs, exact) < 0.09 < total_variation(runs, base)


@pytest.mark.parametrize("method", ["twisted", "tilting", "fk_max", "fk_difference"])
def test_a_row_with_a_target_keeps_it_whatever_the_partial_score_says(method: str) -> None:
    exact = tilted_distribution(LAM)
    target = sum(reward(x) * p for x, p in exact.items())
    options = {"particles": 128, "branching": 1, "lam": LAM, "screen": 4}
    runs = survivors(method, 40, Rough(), **options)
    rewards = np.array([mean_reward(run) for run in runs])
    assert abs(rewards.mean() - target) < 4 * rewards.std() / math.sqrt(len(runs)) + 6e-3
    assert total_variation(runs, exact) < 0.1


def test_a_row_without_a_target_goes_where_the_partial_score_leads() -> None:
    options = {"particles": 64, "branching": 1, "lam": LAM}
    led = np.mean([mean_reward(run) for run in survivors("s3", 20, Rough(), screen=8, **options)])
    free = np.mean([mean_reward(run) for run in survivors("s3", 20, Rough(), **options)])
    assert led < free - 0.05


def test_the_log_normaliser_stays_an_estimate_of_the_tilts_constant() -> None:
    def constant(screen: int) -> float:
        estimates = []
        for seed in range(60):
            _, steps = sample(
                "twisted", seed, Rough(), particles=80, branching=1, lam=LAM, screen=screen
            )
            estimates.append(math.exp(sum(step.log_normaliser for step in steps)))
        return float(np.mean(estimates))

    assert constant(4) == pytest.approx(constant(0), rel=0.06)


@pytest.mark.parametrize("method", ["best_of_k", "s3"])
@pytest.mark.parametrize("changes", [{"lam": 0.0}, {"screen": 1}])
def test_one_candidate_or_no_tilt_is_no_screening(
    method: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Settings.__init__

    def unchecked(self: Settings, *given: Any, **options: Any) -> None:
        made(self, *given, **options)
        for name, number in changes.items():
            self.__dict__[name] = number

    monkeypatch.setattr(Settings, "__init__", unchecked)
    lam = 1e-9 if "lam" not in changes else 1.0  # s3 without a tilt samples p, too
    runs = survivors(method, 60, Rough(), particles=32, branching=1, lam=lam, screen=8)
    assert total_variation(runs, base_distribution()) < 0.09


def test_n_passes_judge_n_times_k_children() -> None:
    _, steps = sample("s3", 3, Rough(), particles=4, branching=1, lam=LAM, screen=32)
    for step in steps:
        assert len(step.tokens) == 4
        assert step.nfe <= 4
