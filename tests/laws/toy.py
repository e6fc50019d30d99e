"""A diffusion model small enough to enumerate, and the exact distributions it implies."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from s3dlm.diffusion import MaskedDiffusion
from s3dlm.models.forward import Forward
from s3dlm.schedule import reveals
from s3dlm.search.loop import Outcome, Step, search
from s3dlm.search.methods import Plan
from s3dlm.search.score import Scorer
from s3dlm.settings import Settings
from s3dlm.verifier import as_verifier

LETTERS = 3
MASK = 3
LENGTH, STEPS = 4, 3


class ToyDenoiser:
    """Three letters, four positions, logits a fixed random function of what is revealed."""

    mask_id, vocabulary, context = MASK, 4, 64

    def logits(self, canvas: tuple[int, ...]) -> np.ndarray:
        seed = sum((token + 1) * 5**place for place, token in enumerate(canvas))
        return np.random.default_rng([11, seed]).normal(size=(LENGTH, 4)) * 1.2

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        features = torch.zeros(*tokens.shape, 4)
        for row, canvas in enumerate(tokens[:, 1 : 1 + LENGTH].tolist()):
            features[row, 1 : 1 + LENGTH] = torch.from_numpy(self.logits(tuple(canvas)))
        return features

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


def reward(tokens: tuple[int, ...]) -> float:
    """A verifier that likes twos, and likes them more side by side."""
    pairs = sum(a == b == 2 for a, b in itertools.pairwise(tokens))
    return (tokens.count(2) + pairs) / (2 * LENGTH - 1)


def read(ids: list[int]) -> str:
    return "".join(map(str, ids))


def base_distribution(temperature: float = 1.0) -> dict[tuple[int, ...], float]:
    """p(x) of one trajectory, by enumerating every draw of every step; written from LLaDA's rules."""
    states = {(MASK,) * LENGTH: 1.0}
    for reveal in reveals(LENGTH, STEPS, LENGTH):
        following: dict[tuple[int, ...], float] = defaultdict(float)
        for canvas, mass in states.items():
            for child, chance in _children(canvas, reveal.count, temperature):
                following[child] += mass * chance
        states = following
    return states


def _children(canvas: tuple[int, ...], count: int, temperature: float):  # type: ignore[no-untyped-def]
    logits = ToyDenoiser().logits(canvas)[:, :LETTERS]
    sampling = np.exp(logits / temperature)
    sampling /= sampling.sum(1, keepdims=True)
    confidence = np.exp(logits)
    confidence /= confidence.sum(1, keepdims=True)
    hidden = [place for place, token in enumerate(canvas) if token == MASK]
    for letters in itertools.product(range(LETTERS), repeat=len(hidden)):
        chance = np.prod([sampling[p, t] for p, t in zip(hidden, letters, strict=True)])
        drawn = dict(zip(hidden, letters, strict=True))
        eager = sorted(hidden, key=lambda p: -confidence[p, drawn[p]])[:count]
        yield tuple(drawn[p] if p in eager else t for p, t in enumerate(canvas)), float(chance)


def tilted_distribution(lam: float) -> dict[tuple[int, ...], float]:
    """p·exp(λ·f), normalised."""
    mass = {x: p * np.exp(lam * reward(x)) for x, p in base_distribution().items()}
    total = sum(mass.values())
    return {x: m / total for x, m in mass.items()}


def sample(method: str, seed: int, **options: float | str | None) -> tuple[Outcome, list[Step]]:
    """One search on the toy, driven by hand."""
    settings = Settings(
        method=method,
        temperature=1.0,
        gen_length=LENGTH,
        steps=STEPS,
        block_length=LENGTH,
        **options,
    )  # type: ignore[arg-type]
    plan = Plan.of(settings)
    process = MaskedDiffusion(
        prompt=np.zeros(1, dtype=np.int64),
        schedule=reveals(LENGTH, STEPS, LENGTH),
        policy="low_confidence",
        temperature=1.0,
        draws=plan.particles * plan.branching,
        look_ahead_wanted=True,
        mask_id=MASK,
        end_ids=np.zeros(0, dtype=np.int64),
        decode=read,
        label="toy",
    )
    verifier = as_verifier(lambda prompt, text, confidence: reward(tuple(map(int, text))))
    forward = Forward(ToyDenoiser())
    running = search(
        process, Scorer(verifier, "toy", "toy", process), plan, np.random.default_rng(seed)
    )
    steps: list[Step] = []
    said = next(running)
    while True:
        try:
            if isinstance(said, Step):
                steps.append(said)
                said = next(running)
            else:
                said = running.send(forward([said])[0])
        except StopIteration as end:
            return end.value, steps
