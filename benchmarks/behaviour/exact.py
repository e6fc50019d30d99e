"""Distances from the exact target, on the enumerable toy of the tests.

On four positions and three letters every trajectory can be listed, so h_t(x) = E[exp(λ·f(x₀)) | x_t = x]
is known, and so is the twisted kernel p(x_{t−1} | x_t)·h_{t−1}(x_{t−1}) / h_t(x_t), whose samples have
exactly the distribution p·exp(λf). What each method samples is compared with that.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pandas as pd

from s3dlm.diffusion.blocks import reveals
from tests.laws import toy

Text = tuple[int, ...]
RUNS = 400
PARTICLES = (2, 4, 8, 16, 32, 64)
LAMBDAS = (1.0, 3.0, 10.0)
STEPS = (2, 3, 4)
USUAL = {"lam": 3.0, "steps": 3, "particles": 16}
METHODS = ("exact kernel", "twisted", "tilting", "s3", "best of K")


def values(lam: float, steps: int) -> list[dict[Text, tuple[float, float]]]:
    """After each step, every canvas that can be reached: its probability and its h."""
    schedule = reveals(toy.LENGTH, steps, toy.LENGTH)
    kernels: list[dict[Text, dict[Text, float]]] = []
    reached: list[dict[Text, float]] = [{(toy.MASK,) * toy.LENGTH: 1.0}]
    for reveal in schedule:
        kernel: dict[Text, dict[Text, float]] = {}
        following: dict[Text, float] = defaultdict(float)
        for canvas, mass in reached[-1].items():
            row: dict[Text, float] = defaultdict(float)
            places = range(reveal.start, reveal.stop)
            for child, chance in toy.children_of(canvas, places, reveal.count):
                row[child] += chance
                following[child] += mass * chance
            kernel[canvas] = row
        kernels.append(kernel)
        reached.append(following)
    h = {text: float(np.exp(lam * toy.reward(text))) for text in reached[-1]}
    found = [{text: (mass, h[text]) for text, mass in reached[-1].items()}]
    for kernel, states in zip(reversed(kernels), reversed(reached[:-1]), strict=True):
        h = {c: sum(p * h[child] for child, p in kernel[c].items()) for c in states}
        found.insert(0, {canvas: (mass, h[canvas]) for canvas, mass in states.items()})
    return found


def through_kernel(lam: float, steps: int) -> dict[Text, float]:
    """What the exact twisted kernel samples, step by step."""
    levels = values(lam, steps)
    schedule = reveals(toy.LENGTH, steps, toy.LENGTH)
    states: dict[Text, float] = dict.fromkeys(levels[0], 1.0)
    for reveal, level in zip(schedule, levels[1:], strict=True):
        following: dict[Text, float] = defaultdict(float)
        for canvas, mass in states.items():
            places = range(reveal.start, reveal.stop)
            children = list(toy.children_of(canvas, places, reveal.count))
            total = sum(p * level[child][1] for child, p in children)
            for child, p in children:
                following[child] += mass * p * level[child][1] / total
        states = following
    return states


def potentials(lam: float, steps: int) -> pd.DataFrame:
    """How far the look-ahead's potential exp(λ·f(x̂₀)) is from h, by step: the root mean square of the
    difference of their logarithms under the base measure, and the correlation."""
    rows = []
    for step, level in enumerate(values(lam, steps)):
        mass = np.array([m for m, _ in level.values()])
        log_h = np.log([h for _, h in level.values()])
        ahead = lam * np.array([toy.look_ahead(canvas) for canvas in level])
        mass /= mass.sum()
        mean_h, mean_a = mass @ log_h, mass @ ahead
        spread = np.sqrt((mass @ (log_h - mean_h) ** 2) * (mass @ (ahead - mean_a) ** 2))
        together = mass @ ((log_h - mean_h) * (ahead - mean_a))
        error = float(np.sqrt(mass @ (log_h - ahead) ** 2))
        rows.append((lam, steps, step, error, together / spread if spread > 1e-12 else np.nan))
    return pd.DataFrame(rows, columns=["lam", "steps", "step", "error", "correlation"])


def sampled(method: str, lam: float, steps: int, particles: int) -> dict[Text, float]:
    """The mean over runs of what a method's survivors say, by weight; of best-of-K the best text."""
    found: dict[Text, float] = defaultdict(float)
    if method == "exact kernel":
        exact = through_kernel(lam, steps)
        texts, chances = list(exact), np.array(list(exact.values()))
        drawn = np.random.default_rng(0).choice(len(texts), RUNS * particles, p=chances)
        for index, count in enumerate(np.bincount(drawn, minlength=len(texts)).tolist()):
            found[texts[index]] += count / drawn.size
        return found
    row = "tilting" if method == "best of K" else method
    options = {"particles": particles, "branching": 2, "lam": lam}
    for run in toy.survivors(row, RUNS, steps=steps, **options):
        if method == "best of K":
            run = {max(run, key=toy.reward): 1.0}
        for text, share in run.items():
            found[text] += share / RUNS
    return found


def distance(found: Mapping[Text, float], exact: Mapping[Text, float]) -> float:
    """Total variation."""
    texts = {*found, *exact}
    return 0.5 * sum(abs(found.get(text, 0.0) - exact.get(text, 0.0)) for text in texts)


def distances() -> pd.DataFrame:
    """The distance of every method from p·exp(λf), varying one of λ, N and steps at a time."""
    axes = {"particles": PARTICLES, "lam": LAMBDAS, "steps": STEPS}
    rows = []
    for (axis, several), method in itertools.product(axes.items(), METHODS):
        for value in several:
            point = {**USUAL, axis: value}
            lam, steps, particles = (
                float(point["lam"]),
                int(point["steps"]),
                int(point["particles"]),
            )
            exact = toy.tilted_distribution(lam, steps)
            found = sampled(method, lam, steps, particles)
            gained = sum(toy.reward(text) * share for text, share in found.items())
            wanted = sum(toy.reward(text) * share for text, share in exact.items())
            rows.append((axis, value, method, distance(found, exact), gained - wanted))
    return pd.DataFrame(rows, columns=["axis", "value", "method", "distance", "excess"])
