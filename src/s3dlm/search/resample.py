"""From weights to survivors: offspring counts that add up exactly.

Every function takes log-weights and returns how many copies of each candidate survive, Σ = count.
They are all unbiased, E[offspring] = count·w, except `top`; they differ in variance. SSP (Srinivasan
2001; Gerber, Chopin & Whiteley 2019) rounds the expected counts up or down, two at a time, so that
their sum never changes: the least variance of all, and what the paper uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from s3dlm.errors import SettingsError
from s3dlm.inputs import Registry
from s3dlm.search.particles import Children, Floats, Ints, Survivors


def normalised(log_weights: ArrayLike) -> Floats:
    """Weights that sum to one; −inf means zero, and anything without a meaning is an error."""
    logs = np.asarray(log_weights, dtype=np.float64)
    if logs.ndim != 1 or not logs.size:
        raise SettingsError(
            f"log-weights of shape {logs.shape} are not allowed; give one row, one per candidate"
        )
    largest = float(logs.max())  # NaN or +inf if there is any, −inf if there is nothing else
    if not math.isfinite(largest):
        raise SettingsError(
            f"log-weights {logs[:8].tolist()} cannot be normalised: NaN, +inf and all −inf are not "
            "allowed; look for a verifier or a model that returned such a value"
        )
    weights = np.exp(logs - largest)
    result: Floats = weights / weights.sum()
    return result


def effective_sample_size(weights: Floats) -> float:
    """How many equal weights would vary as little: 1/Σw²."""
    return float(1.0 / np.square(weights).sum())


def ssp(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """Srinivasan Sampling Process: each count is ⌊ξ⌋ or ⌈ξ⌉ of its expectation ξ = count·w."""
    parts = [math.modf(expected) for expected in (count * normalised(log_weights)).tolist()]
    offspring = [int(whole) for _, whole in parts]
    open_ = [(index, fraction) for index, (fraction, _) in enumerate(parts) if fraction]
    if not open_:
        return np.array(offspring, dtype=np.int64)
    # Two open fractions meet; one is settled at 0 or 1 and the other carries their sum on.
    holder, carried = open_[0]
    uniforms = rng.random(len(open_) - 1).tolist()
    for (other, fraction), uniform in zip(open_[1:], uniforms, strict=True):
        total = carried + fraction
        if total < 1.0:  # one of the two drops to zero
            if uniform * total >= carried:
                holder = other
            carried = total
        else:  # one of the two rises to one
            settled_holder = uniform * (2.0 - total) < 1.0 - fraction
            offspring[holder if settled_holder else other] += 1
            if settled_holder:
                holder = other
            carried = total - 1.0
    # In exact arithmetic the last one carries 0 or 1; what is missing from the sum says which.
    offspring[holder] += count - sum(offspring)
    return np.array(offspring, dtype=np.int64)


def systematic(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """One uniform, equally spaced points."""
    return _invert(log_weights, count, lambda: (np.arange(count) + rng.random()) / count)


def stratified(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """One uniform in each of `count` equal strata."""
    return _invert(log_weights, count, lambda: (np.arange(count) + rng.random(count)) / count)


def multinomial(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """Independent draws."""
    return _invert(log_weights, count, lambda: rng.random(count))


def residual(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """The whole part of each expectation for sure, the rest by independent draws."""
    expected = count * normalised(log_weights)
    offspring = np.floor(expected).astype(np.int64)
    left = count - int(offspring.sum())
    if left:
        with np.errstate(divide="ignore"):
            offspring += multinomial(np.log(expected - offspring), left, rng)
    return offspring


def top(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> Ints:
    """The heaviest survive, one copy each, ties broken at random; for comparison, it is biased."""
    weights = normalised(log_weights)
    shuffled = rng.permutation(weights.size)
    ranked = shuffled[np.argsort(-weights[shuffled], kind="stable")]
    offspring = np.zeros(weights.size, dtype=np.int64)
    np.add.at(offspring, ranked[np.arange(count) % weights.size], 1)
    return offspring


# (log-weights, survivors, rng) → how many offspring each has, as many as survivors in all.
RESAMPLERS: Registry[Callable[[ArrayLike, int, np.random.Generator], Ints]] = Registry(
    "resampling", "s3dlm.resamplers", object
)
for _resampler in (ssp, systematic, stratified, residual, multinomial, top):
    RESAMPLERS.register(_resampler.__name__, _resampler)


def _invert(log_weights: ArrayLike, count: int, points: Callable[[], Floats]) -> Ints:
    """How many of the points in [0, 1) fall into each weight's share of the line."""
    edges = np.cumsum(normalised(log_weights))
    if count == 0:
        return np.zeros(edges.size, dtype=np.int64)
    last = int(np.flatnonzero(np.diff(edges, prepend=0.0))[-1])  # rounding: no point past the end
    chosen = np.minimum(np.searchsorted(edges, points(), side="right"), last)
    return np.bincount(chosen, minlength=edges.size).astype(np.int64)


def survivors_of(
    children: Children, weight: Floats, size: int, resampler: str, ess_threshold: float | None,
    rng: np.random.Generator,
) -> Survivors:  # fmt: skip
    """Who survives a step in which the method branches; else all live on. See `Run.resample`."""
    if not children.branched:
        return Survivors(np.arange(len(children)), weight, resampled=False)
    even = ess_threshold is not None and (
        effective_sample_size(normalised(weight)) >= ess_threshold * weight.size
    )
    if even:
        return _one_child_each(weight, len(children.particles), rng)
    offspring = RESAMPLERS[resampler](weight, size, rng)
    index = np.repeat(np.arange(offspring.size), offspring)
    return Survivors(index, np.zeros(size), resampled=True)


def _one_child_each(log_weight: Floats, particles: int, rng: np.random.Generator) -> Survivors:
    """Without resampling, every particle continues as one of its own children, chosen by weight; it
    carries their mean, which keeps the estimate unbiased."""
    family = log_weight.reshape(particles, -1)
    top = family.max(axis=1, keepdims=True)
    shares = np.exp(family - top)
    edges = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    chosen = (edges <= rng.random((particles, 1))).sum(axis=1)
    index = np.arange(particles) * family.shape[1] + chosen
    return Survivors(index, top[:, 0] + np.log(shares.mean(axis=1)), resampled=False)
