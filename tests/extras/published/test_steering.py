"""Sequential Monte Carlo of other papers against small literal versions, or against what it must sample."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from s3dlm.diffusion.blocks import Reveal, reveals
from tests.laws.toy import (
    LENGTH,
    START,
    STEPS,
    Canvas,
    assert_agree,
    canvas_of,
    children_of,
    look_ahead,
    mean_rewards,
    propose,
    revealed_logp,
    reward,
    tilted_distribution,
    whole_runs,
)

LAM = 3.0


def place(reveal: Reveal) -> range:
    return range(reveal.start, reveal.stop)


def weighted_reward(particles: list[Canvas], log_weight: np.ndarray) -> float:
    weight = np.exp(log_weight - log_weight.max())
    return float(np.dot([reward(x) for x in particles], weight) / weight.sum())


def drawn(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """A multinomial draw, if the effective sample size is below half."""
    weight = np.exp(log_weight - log_weight.max())
    count = log_weight.size
    if weight.sum() ** 2 / (weight**2).sum() >= 0.5 * count:
        return None
    return rng.choice(count, size=count, p=weight / weight.sum())


def literal_fk(potential: str, count: int, rng: np.random.Generator) -> float:
    """Singhal et al.: potentials from intermediate rewards, resampling when the ESS is below half."""
    particles, history = [START] * count, [[look_ahead(START)] for _ in range(count)]
    paid, log_weight = np.zeros(count), np.zeros(count)
    for index, reveal in enumerate(reveals(LENGTH, STEPS, LENGTH)):
        particles = [propose(x, place(reveal), reveal.count, rng)[0] for x in particles]
        for past, x in zip(history, particles, strict=True):
            past.append(look_ahead(x))
        if potential == "difference":
            gain = np.array([LAM * (past[-1] - past[-2]) for past in history])
        elif index == STEPS - 1:
            gain = np.array([LAM * past[-1] for past in history]) - paid
        else:
            summary: Callable[[list[float]], float] = max if potential == "max" else sum
            gain = np.array([LAM * summary(past) for past in history])
        paid, log_weight = paid + gain, log_weight + gain
        if (chosen := drawn(log_weight, rng)) is not None:
            particles = [particles[i] for i in chosen]
            history = [list(history[i]) for i in chosen]
            paid, log_weight = paid[chosen], np.zeros(count)
    return weighted_reward(particles, log_weight)


@pytest.mark.parametrize("potential", ["difference", "max", "sum"])
def test_fk_steering_is_its_papers_algorithm(potential: str) -> None:
    rng = np.random.default_rng(1)
    literal = np.array([literal_fk(potential, 6, rng) for _ in range(225)])
    assert_agree(mean_rewards(f"fk_{potential}", 225, lam=LAM, particles=3, branching=2), literal)


def test_fk_difference_targets_the_tilt() -> None:
    target = sum(reward(x) * p for x, p in tilted_distribution(LAM).items())
    found = mean_rewards("fk_difference", 60, lam=LAM, particles=64, branching=2)
    assert abs(found.mean() - target) < 4 * found.std() / math.sqrt(found.size) + 4e-3


def literal_self_rewarding(count: int, block_length: int, rng: np.random.Generator) -> float:
    """Luo et al., and their code: weights are the model's own probability of what was revealed; at a
    block's end, below half of the ESS, a multinomial draw; the answer has the largest total log p."""
    particles, log_weight, total = [START] * count, np.zeros(count), np.zeros(count)
    schedule = reveals(LENGTH, LENGTH, block_length)
    for index, reveal in enumerate(schedule):
        children = [propose(x, place(reveal), reveal.count, rng) for x in particles]
        particles, gained = [child for child, _ in children], np.array([g for _, g in children])
        log_weight, total = log_weight + gained, total + gained
        ends = index == len(schedule) - 1 or schedule[index + 1].start != reveal.start
        if ends and (chosen := drawn(log_weight, rng)) is not None:
            particles = [particles[i] for i in chosen]
            log_weight, total = np.zeros(count), total[chosen]
    return reward(particles[int(total.argmax())])


def test_self_rewarding_is_its_papers_algorithm() -> None:
    rng = np.random.default_rng(2)
    literal = np.array([literal_self_rewarding(6, 2, rng) for _ in range(1200)])
    options = {"particles": 6, "steps": LENGTH, "block_length": 2}
    found = whole_runs("self_rewarding", 300, **options)
    assert_agree(np.array([reward(canvas_of(one.text)) for one in found]), literal)


def path_target(lam: float) -> tuple[float, float]:
    """Mean reward and mean path log-likelihood under p(path)·exp(λ·log-likelihood of the path), by
    enumerating every path."""
    paths: dict[tuple[Canvas, float], float] = {(START, 0.0): 1.0}
    for reveal in reveals(LENGTH, STEPS, LENGTH):
        following: dict[tuple[Canvas, float], float] = defaultdict(float)
        for (canvas, likelihood), mass in paths.items():
            for child, chance in children_of(canvas, place(reveal), reveal.count):
                following[child, likelihood + revealed_logp(canvas, child)] += mass * chance
        paths = following
    weight = {key: mass * math.exp(lam * key[1]) for key, mass in paths.items()}
    total = sum(weight.values())
    means = ([reward(x), likelihood] for x, likelihood in weight)
    first, second = np.average(list(means), axis=0, weights=list(weight.values()))
    assert total > 0
    return float(first), float(second)


@pytest.mark.parametrize("lam", [0.0, 1.0, 2.5])
def test_path_likelihood_converges_to_its_target(lam: float) -> None:
    """As many particles as the toy needs: the population's means are those of the enumeration."""
    found = []
    for result in whole_runs("path_likelihood", 12, lam=lam, particles=256, branching=2):
        texts = [canvas_of(one.text) for one in result.survivors]
        likelihood = [-LENGTH * one.nll for one in result.survivors]  # nll is a mean per token
        found.append((np.mean([reward(x) for x in texts]), np.mean(likelihood)))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0) / math.sqrt(len(found))
    for mean, error, target in zip(means, errors, path_target(lam), strict=True):
        assert abs(mean - target) < 4 * error + 5e-3
        assert error < 0.02


def literal_gibbs(count: int, sweeps: int, rng: np.random.Generator) -> float:
    """Conditional SMC: the first particle retraces the trajectory kept from the sweep before."""
    kept: list[Canvas] = []
    for _ in range(sweeps):
        paths: list[list[Canvas]] = [[START] for _ in range(count)]
        scores = np.full(count, look_ahead(START))
        for index, reveal in enumerate(reveals(LENGTH, STEPS, LENGTH)):
            for number, path in enumerate(paths):
                retraced = kept and number == 0
                child = (
                    kept[index]
                    if retraced
                    else propose(path[-1], place(reveal), reveal.count, rng)[0]
                )
                path.append(child)
            now = np.array([look_ahead(path[-1]) for path in paths])
            weight = np.exp(LAM * (now - scores))
            free = count - bool(kept)
            chosen = [0] * bool(kept) + rng.choice(
                count, size=free, p=weight / weight.sum()
            ).tolist()
            paths, scores = [list(paths[i]) for i in chosen], now[chosen]
        kept = paths[int(rng.integers(count))][1:]
    return float(np.mean([reward(path[-1]) for path in paths]))


def test_particle_gibbs_is_its_papers_algorithm() -> None:
    rng = np.random.default_rng(3)
    literal = np.array([literal_gibbs(4, 3, rng) for _ in range(170)])
    assert_agree(mean_rewards("particle_gibbs", 170, lam=LAM, particles=4, branching=3), literal)
