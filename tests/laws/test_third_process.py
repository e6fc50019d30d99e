"""A third kind of diffusion, made as a stranger would: noise that is uniform and knows its time, on so few
tokens that everything can be enumerated. It runs through `generate`, and `twisted` has the exact target."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm import generate
from s3dlm.diffusion.blocks import TextReader
from s3dlm.job import Job
from s3dlm.models.base import Denoiser, Model
from s3dlm.models.packing import Rows
from s3dlm.search.particles import (
    PROCESSES,
    Bools,
    Canvas,
    CanvasPredictions,
    CleanText,
    Ints,
    Progress,
)
from s3dlm.settings import Settings
from tests.fuzz import counts
from tests.laws.toy import Digits, reward, score

LETTERS, LENGTH, STEPS, LAM = 3, 3, 3, 2.0


@dataclass(frozen=True)
class At:
    """The time of a canvas, which is all that its tokens do not say."""

    step: int

    @property
    def key(self) -> bytes:
        return bytes([self.step])


@dataclass(frozen=True)
class TimedNoise:
    """Every step draws all tokens anew, from a prediction that is told the time; the first tokens are zeros."""

    prompt: Ints
    reader: TextReader
    draws: int
    steps: int = STEPS
    passes: int = 1

    def start(self, size: int, rng: np.random.Generator) -> Canvas:
        return self._canvas(np.zeros((size, LENGTH), np.int64), np.zeros((size, LENGTH)), 0)

    def _canvas(self, tokens: Ints, logp: Any, step: int) -> Canvas:
        canvas = Canvas(tokens, logp)
        canvas.state[:] = At(step) if step < self.steps else None
        return canvas

    def is_open(self, canvas: Canvas) -> Bools:
        return np.array([state is not None for state in canvas.state], dtype=np.bool_)

    def progress(self, canvas: Canvas, step: int) -> Progress:
        done = min(self.steps if state is None else state.step for state in canvas.state)
        return Progress(done, self.steps, int(done == self.steps))

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        clock = np.array(
            [[LETTERS + state.step] for state in canvas.state]
        )  # the first token is the time
        rows = np.hstack([clock, canvas.tokens])
        wanted = np.tile(np.arange(1 + LENGTH) > 0, (len(rows), 1))
        uniforms, first = rng.random((len(rows), LENGTH, self.draws)), np.ones(len(rows), int)
        return Rows(
            self.prompt, rows, wanted, first, first + LENGTH, uniforms, 1.0, look_ahead=True,
            statistics=False, label="a toy",
        )  # fmt: skip

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        value, row = prediction.value, prediction.row
        now = canvas.state[0].step + 1
        return self._canvas(value.draws[row, :, draw], value.draws_logp[row, :, draw], now)

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        tokens, logp, value = canvas.tokens, canvas.logp, prediction.value
        if value is not None:
            tokens, logp = value.top[prediction.row, 1:], value.top_logp[prediction.row, 1:]
        yield self.reader.clean(tokens, logp)

    def greedy(self) -> TimedNoise:
        return self

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[TimedNoise, Canvas]:
        return replace(self, steps=1), self._canvas(canvas.tokens, canvas.logp, 0)


@cache
def logits(row: tuple[int, ...]) -> np.ndarray:
    """A fixed random function of the time and the tokens."""
    return np.random.default_rng([7, *row]).normal(size=(LENGTH, LETTERS)) * 1.2


class TimedDenoiser(Denoiser):
    mask_id, vocabulary, context, diffusion = -1, LETTERS, 64, "timed"

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        features = torch.zeros(*tokens.shape, LETTERS)
        for out, row in zip(features, tokens.tolist(), strict=True):
            out[2 : 2 + LENGTH] = torch.from_numpy(logits(tuple(row[1 : 2 + LENGTH])))
        return features

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


def timed(model: Model, job: Job, prompt: Ints) -> TimedNoise:
    reader = TextReader(model.tokenizer.decode, -1, np.empty(0, np.int64))
    return TimedNoise(prompt, reader, job.settings.search.draws)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(PROCESSES, "_known", {**PROCESSES._known, "timed": timed})
    return Model("timed", TimedDenoiser(), Digits(), frozenset())


def target(lam: float) -> dict[tuple[int, ...], float]:
    """p·exp(λ·f), normalised, by enumerating every draw of every step."""
    states = {(0,) * LENGTH: 1.0}
    for step in range(STEPS):
        following: dict[tuple[int, ...], float] = defaultdict(float)
        for tokens, mass in states.items():
            p = np.exp(logits((LETTERS + step, *tokens)))
            p /= p.sum(1, keepdims=True)
            for child in itertools.product(range(LETTERS), repeat=LENGTH):
                following[child] += mass * float(np.prod(p[range(LENGTH), child]))
        states = following
    tilted = {x: p * math.exp(lam * reward(x)) for x, p in states.items()}
    total = sum(tilted.values())
    return {x: mass / total for x, mass in tilted.items()}


@pytest.mark.parametrize(("method", "lam"), [("baseline", 0.0), ("twisted", LAM)])
@counts(25, 200)
def test_it_runs_through_generate_and_has_the_exact_target(
    model: Model, method: str, lam: float, count: int
) -> None:
    exact, found = target(lam), defaultdict[tuple[int, ...], float](float)
    many = {"particles": 64, "branching": 2, "lam": lam, "gen_length": LENGTH, "steps": STEPS}
    runs = count if method == "twisted" else 16 * count
    for seed in range(runs):
        settings = Settings.over(method, [many], {"seed": seed})
        result = generate(model, "0", settings=settings, verifier=score)
        assert result.nfe <= 1 + STEPS * settings.search.size * settings.search.children
        weight = np.exp([one.log_weight for one in result.survivors])
        for one, share in zip(result.survivors, weight / weight.sum(), strict=True):
            found[tuple(map(int, one.text))] += float(share) / runs
    distance = 0.5 * sum(abs(found[x] - p) for x, p in exact.items())
    assert distance < (0.07 if method == "twisted" else 2.2 / math.sqrt(runs))


@pytest.mark.parametrize("method", ["s3", "best_of_k", "top_n", "revise", "restarts", "tilting"])
def test_every_kind_of_method_drives_it(model: Model, method: str) -> None:
    usual = {"gen_length": LENGTH, "steps": STEPS, "budget": 40}
    result = generate(model, "0", settings=Settings.over(method, [usual], {}), verifier=score)
    assert len(result.text) == LENGTH
