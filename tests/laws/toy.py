"""A diffusion model small enough to enumerate, and the exact distributions it implies."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

import s3dlm
from s3dlm import Job, Result, Step
from s3dlm.diffusion.blocks import reveals
from s3dlm.models.base import Denoiser, Model, Tokenizer
from s3dlm.settings import Settings
from s3dlm.verifier import HOLE

LETTERS = 3
MASK = 3
LENGTH, STEPS = 4, 3
Canvas = tuple[int, ...]
START: Canvas = (MASK,) * LENGTH


class ToyDenoiser(Denoiser):
    """Three letters, four positions, logits a fixed random function of what is revealed."""

    mask_id, vocabulary, context = MASK, 4, 64

    @staticmethod
    @cache  # there are 256 canvases
    def logits(canvas: Canvas) -> np.ndarray:
        seed = sum((token + 1) * 5**place for place, token in enumerate(canvas))
        return np.random.default_rng([11, seed]).normal(size=(LENGTH, 4)) * 1.2

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        features = torch.zeros(*tokens.shape, 4)
        rows = [self.logits(tuple(canvas)) for canvas in tokens[:, 1 : 1 + LENGTH].tolist()]
        features[:, 1 : 1 + LENGTH] = torch.from_numpy(np.stack(rows))
        return features

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


@cache
def reward(tokens: Canvas) -> float:
    """A verifier that likes twos, and likes them more side by side."""
    pairs = sum(a == b == 2 for a, b in itertools.pairwise(tokens))
    return (tokens.count(2) + pairs) / (2 * LENGTH - 1)


def base_distribution(steps: int = STEPS, block_length: int = LENGTH) -> dict[Canvas, float]:
    """p(x) of one trajectory, by enumerating every draw of every step; written from LLaDA's rules."""
    states = {START: 1.0}
    for reveal in reveals(LENGTH, steps, block_length):
        following: dict[Canvas, float] = defaultdict(float)
        for canvas, mass in states.items():
            for child, chance in children_of(
                canvas, range(reveal.start, reveal.stop), reveal.count
            ):
                following[child] += mass * chance
        states = following
    return states


def children_of(canvas: Canvas, places: range, count: int) -> Iterator[tuple[Canvas, float]]:
    """Every child of a canvas with its probability, one entry per draw of the hidden positions."""
    p = np.exp(log_p(canvas))
    hidden = [place for place in places if canvas[place] == MASK]
    for letters in itertools.product(range(LETTERS), repeat=len(hidden)):
        drawn = dict(zip(hidden, letters, strict=True))
        eager = sorted(hidden, key=lambda place: -p[place, drawn[place]])[:count]
        child = tuple(drawn[q] if q in eager else t for q, t in enumerate(canvas))
        yield child, float(np.prod([p[place, drawn[place]] for place in hidden]))


def tilted_distribution(lam: float, steps: int = STEPS) -> dict[Canvas, float]:
    """p·exp(λ·f), normalised."""
    mass = {x: p * np.exp(lam * reward(x)) for x, p in base_distribution(steps).items()}
    total = sum(mass.values())
    return {x: m / total for x, m in mass.items()}


class Digits(Tokenizer):
    """Token ids as digits; every prompt is one token long."""

    def encode(self, text: str) -> list[int]:
        return [int(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(str, ids))

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return [0]


TOY = Model("toy", ToyDenoiser(), Digits(), frozenset())


def score(prompt: str, text: str, confidence: float | None) -> float:
    return reward(canvas_of(text))


def sample(
    method: str, seed: int, verifier: object = score, **options: object
) -> tuple[Result, list[Step]]:
    """One run through the engine, as a user would start it, and its steps."""
    settings = settings_of(method, seed, options)
    *steps, result = s3dlm.stream(TOY, "toy", settings=settings, verifier=verifier).events
    return result, steps


def settings_of(method: str, seed: int, options: Mapping[str, object]) -> Settings:
    usual = {"temperature": 1.0, "gen_length": LENGTH, "steps": STEPS, "block_length": LENGTH}
    return Settings.over(method, [usual], {**options, "seed": seed})


def whole_runs(method: str, runs: int, verifier: object = score, **options: object) -> list[Result]:
    """The results of as many runs, each with its own seed; side by side, which changes none of them."""
    jobs = [
        Job("toy", settings=settings_of(method, n, options), verifier=verifier) for n in range(runs)
    ]
    events = s3dlm.run(TOY, jobs, max_rows=256)
    found = {index: event for index, event in events if isinstance(event, Result)}
    return [found[seed] for seed in range(runs)]


def survivors(
    method: str, runs: int, verifier: object = score, **options: object
) -> list[dict[Canvas, float]]:
    """For each of as many runs, the weight of every answer among its survivors."""
    found = []
    for result in whole_runs(method, runs, verifier, **options):
        weight = np.exp([one.log_weight for one in result.survivors])
        run: Counter[Canvas] = Counter()
        for one, share in zip(result.survivors, weight / weight.sum(), strict=True):
            run[canvas_of(one.text)] += float(share)
        found.append(dict(run))
    return found


def canvas_of(text: str) -> Canvas:
    return tuple(MASK if letter == HOLE else int(letter) for letter in text)


def mean_reward(run: Mapping[Canvas, float]) -> float:
    return sum(reward(x) * share for x, share in run.items())


def mean_rewards(method: str, runs: int, **options: object) -> np.ndarray:
    """The mean reward of each run's survivors."""
    return np.array([mean_reward(run) for run in survivors(method, runs, **options)])


def assert_agree(one: np.ndarray, other: np.ndarray) -> None:
    """Both have the same mean, as far as so many runs can tell."""
    error = math.sqrt(one.var() / one.size + other.var() / other.size)
    assert abs(one.mean() - other.mean()) < 3 * error + 1e-9
    assert error < 0.02  # else the comparison says nothing; three of it, as all seeds are fixed


def revealed_logp(canvas: Canvas, child: Canvas) -> float:
    """The log-probability of what the child has and the canvas has not."""
    logp = log_p(canvas)
    fresh = [i for i, token in enumerate(canvas) if token == MASK and child[i] != MASK]
    return float(sum(logp[i, child[i]] for i in fresh))


def propose(
    canvas: Canvas, places: range, count: int, rng: np.random.Generator
) -> tuple[Canvas, float]:
    """One literal denoising step: a child and the log-probability of what it revealed."""
    logp = log_p(canvas)
    drawn = {place: draw(canvas, place, rng) for place in places if canvas[place] == MASK}
    eager = sorted(drawn, key=lambda place: -logp[place, drawn[place]])[:count]
    child = tuple(drawn[place] if place in eager else token for place, token in enumerate(canvas))
    return child, float(sum(logp[place, drawn[place]] for place in eager))


def draw(canvas: Canvas, place: int, rng: np.random.Generator) -> int:
    """A letter from the model's distribution, as `rng.choice` draws it, which takes ten times as long."""
    return int(_cumulated(ToyDenoiser.logits, canvas)[place].searchsorted(rng.random(), "right"))


def look_ahead(canvas: Canvas) -> float:
    """Reward of the argmax fill."""
    return reward(filled(canvas))


def log_p(canvas: Canvas) -> np.ndarray:
    """The model's log-probabilities of the letters."""
    return _log_p(ToyDenoiser.logits, canvas)


def filled(canvas: Canvas) -> Canvas:
    """The argmax fill."""
    return _filled(ToyDenoiser.logits, canvas)


# There are few canvases; a test may replace the logits.
Logits = Callable[[Canvas], np.ndarray]


@cache
def _log_p(logits_of: Logits, canvas: Canvas) -> np.ndarray:
    logits = logits_of(canvas)[:, :LETTERS]
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


@cache
def _cumulated(logits_of: Logits, canvas: Canvas) -> np.ndarray:
    total = np.exp(_log_p(logits_of, canvas)).cumsum(1)
    return np.asarray(total / total[:, -1:])


@cache
def _filled(logits_of: Logits, canvas: Canvas) -> Canvas:
    best = logits_of(canvas)[:, :LETTERS].argmax(1)
    return tuple(int(b) if t == MASK else t for b, t in zip(best, canvas, strict=True))
