"""Moves that hide positions blindly and are accepted by Metropolis' rule leave p·exp(λ·f) as it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm.diffusion.blocks import Blocks, TextReader, reveals
from s3dlm.diffusion.decoding import Decoding
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.extras.grids.mend import Mend
from s3dlm.models.base import Denoiser
from s3dlm.models.forward import Forward
from s3dlm.search.particles import Canvas, CleanText
from s3dlm.search.run import Run
from s3dlm.search.score import Scorer, verify
from s3dlm.search.step import Outcome
from s3dlm.verifier import Score, Verifier, as_verifier
from tests.laws.toy import LENGTH, LETTERS, MASK, reward

TEXTS = list(itertools.product(range(LETTERS), repeat=LENGTH))
JOINT = np.random.default_rng(5).dirichlet(np.full(len(TEXTS), 0.5))
PARTICLES, LAM = 8_000, 3.0


class ConsistentDenoiser(Denoiser):
    """Predicts every hidden letter as the joint distribution does, given those that are known."""

    mask_id, vocabulary, context = MASK, 4, 64

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        features = torch.full((*tokens.shape, 4), -30.0)
        # Of many thousand rows there are at most 256 different ones.
        canvases, which = tokens[:, 1 : 1 + LENGTH].unique(dim=0, return_inverse=True)
        known = torch.from_numpy(np.stack([self.row(canvas) for canvas in canvases.numpy()]))
        features[:, 1 : 1 + LENGTH, :LETTERS] = known.float()[which]
        return features

    def row(self, canvas: np.ndarray) -> np.ndarray:
        """Log-probabilities (LENGTH, LETTERS)."""
        texts, known = np.array(TEXTS), canvas != MASK
        mass = JOINT * (texts[:, known] == canvas[known]).all(axis=1)
        share = [np.bincount(texts[:, place], mass, LETTERS) for place in range(LENGTH)]
        return np.asarray(np.log(np.stack(share) / mass.sum() + 1e-12))

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


def process() -> MaskedDiffusion:
    return MaskedDiffusion(
        prompt=np.zeros(1, dtype=np.int64),
        schedule=reveals(LENGTH, LENGTH, LENGTH),
        blocks=Blocks(LENGTH),
        decoding=Decoding(policy="random", temperature=1.0),
        draws=PARTICLES,
        look_ahead_wanted=True,
        reader=TextReader(lambda ids: "".join(map(str, ids)), MASK, np.zeros(0, dtype=np.int64)),
        label="toy",
    )


def drive(running: Coroutine[Any, Any, Any]) -> Any:
    """What a search returns whose requests are answered one by one."""
    forward, reply = Forward(ConsistentDenoiser()), None
    while True:
        try:
            request = running.send(reply)
        except StopIteration as end:
            return end.value
        rows = request.forwards
        (reply,) = [request.reply(forward(rows))] if rows else verify([request])


def target(lam: float) -> np.ndarray:
    mass = JOINT * np.exp(lam * np.array([reward(text) for text in TEXTS]))
    return np.asarray(mass / mass.sum())


class Doubtful(Verifier):
    """Doubts all letters alike, or those more of which a text of no great reward has most."""

    def __init__(self, share: float, zeros: float = 0.0) -> None:
        self.share, self.zeros = share, zeros

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        doubt = [max(self.share, self.zeros * (letter == "0")) for letter in text]
        spans = [(at, at + 1, share) for at, share in enumerate(doubt)]
        return Score(reward(tuple(map(int, text))), spans=spans)


def moved(shares: np.ndarray, seed: int, verifier: Any, **options: Any) -> np.ndarray:
    """The shares of all texts after one move of particles that had these shares."""
    rng, toy = np.random.default_rng(seed), process()
    first = rng.choice(len(TEXTS), PARTICLES, p=shares)
    run = Run(toy, Scorer(as_verifier(verifier), "toy", "toy", toy), rng)
    tokens, logp = np.array(TEXTS)[first], np.zeros((PARTICLES, LENGTH))
    clean = CleanText(tokens, logp, np.ones(PARTICLES))
    scores = drive(run.scorer.score(clean, "the start"))
    everyone = np.arange(PARTICLES)
    before = Outcome(Canvas(tokens, logp), np.zeros(PARTICLES), clean, scores, 0, 0, everyone)
    method = Mend(particles=PARTICLES, look_aheads=1, child_sampling="independent", **options)
    outcome = drive(method._move(run, [], before, method, math.inf, 1))
    after = outcome.canvas.tokens @ LETTERS ** np.arange(LENGTH)[::-1]
    return np.bincount(after, minlength=len(TEXTS)) / PARTICLES


def is_sample_of(found: np.ndarray, exact: np.ndarray) -> bool:
    return bool((np.abs(found - exact) < 5 * np.sqrt(exact / PARTICLES) + 1e-3).all())


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_blind_moves_by_metropolis_keep_the_target(share: float) -> None:
    after = moved(target(LAM), 1, Doubtful(share), lam=LAM)
    assert is_sample_of(after, target(LAM))


def test_they_move_towards_the_target() -> None:
    def distance(shares: np.ndarray) -> float:
        return float(np.abs(shares - target(LAM)).sum())

    assert distance(moved(JOINT, 2, Doubtful(0.5), lam=LAM)) < 0.9 * distance(JOINT)


def test_keeping_whatever_moved_targets_the_model_alone() -> None:
    options = {"accept": "replace", "lam": LAM}
    assert is_sample_of(moved(JOINT, 3, Doubtful(1.0), **options), JOINT)
    assert np.abs(moved(target(LAM), 4, Doubtful(1.0), **options) - target(LAM)).sum() > 0.05


@pytest.mark.parametrize(("share", "exact"), [(1.0, True), (0.05, False)])
def test_hiding_by_doubt_is_a_heuristic_and_says_so(share: float, exact: bool) -> None:
    """What is hidden follows from the text, so the way back is not as likely as the way there."""
    after = moved(target(LAM), 5, Doubtful(share, zeros=0.9), lam=LAM)
    assert is_sample_of(after, target(LAM)) == exact
