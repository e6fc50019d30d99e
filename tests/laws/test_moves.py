"""Moves that hide positions blindly and are accepted by Metropolis' rule leave p·exp(λ·f) as it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm.diffusion.blocks import Blocks, TextReader, reveals
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.models.base import Denoiser
from s3dlm.search.methods import Method
from s3dlm.search.particles import Canvas, CleanText
from s3dlm.search.remask import Standing
from s3dlm.search.rounds import _round
from s3dlm.search.score import Scorer
from s3dlm.search.step import Outcome, Setup
from s3dlm.settings import Settings
from s3dlm.verifier import Score, Verifier, as_verifier
from tests.laws.toy import LENGTH, LETTERS, MASK, drive, read, reward

TEXTS = list(itertools.product(range(LETTERS), repeat=LENGTH))
JOINT = np.random.default_rng(5).dirichlet(np.full(len(TEXTS), 0.5))
PARTICLES = 8_000


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
        decoding=Settings(policy="random", temperature=1.0),
        draws=PARTICLES,
        look_ahead_wanted=True,
        reader=TextReader(read, MASK, np.zeros(0, dtype=np.int64)),
        label="toy",
    )


def target(lam: float) -> np.ndarray:
    mass = JOINT * np.exp(lam * np.array([reward(text) for text in TEXTS]))
    return np.asarray(mass / mass.sum())


def moved(
    shares: np.ndarray, settings: Settings, seed: int, judge: Verifier | None = None
) -> np.ndarray:
    """The shares of all texts after one move of particles that had these shares."""
    rng, toy = np.random.default_rng(seed), process()
    first = rng.choice(len(TEXTS), PARTICLES, p=shares)
    verifier = judge or as_verifier(lambda prompt, text, confidence: reward(tuple(map(int, text))))
    scorer = Scorer(verifier, "toy", "toy", toy)
    tokens, logp = np.array(TEXTS)[first], np.zeros((PARTICLES, LENGTH))
    clean = CleanText(tokens, logp, np.ones(PARTICLES))
    scores, _ = drive(scorer.score(clean, "the start"), ConsistentDenoiser())
    population = Outcome(Canvas(tokens, logp), np.zeros(PARTICLES), clean, scores, 0, 0)
    setup = Setup(toy, scorer, settings.adapted(particles=PARTICLES), rng)
    running = _round(setup, population, np.inf, Standing.begin(PARTICLES), 1)
    (outcome, _), _ = drive(running, ConsistentDenoiser())
    after = outcome.canvas.tokens @ LETTERS ** np.arange(LENGTH)[::-1]
    return np.bincount(after, minlength=len(TEXTS)) / PARTICLES


@pytest.mark.parametrize("remask_fraction", [0.3, 1.0])
def test_blind_moves_by_metropolis_keep_the_target(remask_fraction: float) -> None:
    lam = 3.0
    settings = Settings(
        Method(),
        rounds=1,
        remask="random",
        remask_fraction=remask_fraction,
        accept="metropolis",
        lam=lam,
    )
    after = moved(target(lam), settings, 1)
    error = np.sqrt(target(lam) / PARTICLES)
    assert (np.abs(after - target(lam)) < 5 * error + 1e-3).all()


def test_they_move_towards_the_target() -> None:
    lam = 3.0
    settings = Settings(
        Method(), rounds=1, remask="random", remask_fraction=0.5, accept="metropolis", lam=lam
    )

    def distance(shares: np.ndarray) -> float:
        return float(np.abs(shares - target(lam)).sum())

    after = moved(JOINT, settings, 2)
    assert distance(after) < 0.9 * distance(JOINT)


def test_keeping_whatever_moved_targets_the_model_alone() -> None:
    settings = Settings(
        Method(), rounds=1, remask="random", remask_fraction=1.0, accept="replace", lam=3.0
    )
    error = np.sqrt(JOINT / PARTICLES)
    assert (np.abs(moved(JOINT, settings, 3) - JOINT) < 5 * error + 1e-3).all()
    assert np.abs(moved(target(3.0), settings, 4) - target(3.0)).sum() > 0.05


def doubtful(prompt: str, text: str, confidence: float | None) -> Score:
    """Doubts the letters of which a text of no great reward has most."""
    value = reward(tuple(map(int, text)))
    spans = [(at, at + 1, 0.9 * (letter == "0")) for at, letter in enumerate(text)]
    return Score(value, spans=spans)


class Doubtful(Verifier):
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return doubtful(prompt, text, confidence)


@pytest.mark.parametrize(("floor", "exact"), [(1.0, True), (0.05, False)])
def test_hiding_by_doubt_is_a_heuristic_and_says_so(floor: float, exact: bool) -> None:
    """What is hidden follows from the text, so the way back is not as likely as the way there."""
    lam = 3.0
    settings = Settings(
        Method(), rounds=1, remask="weighted", remask_floor=floor, accept="metropolis", lam=lam
    )
    after = moved(target(lam), settings, 5, Doubtful())
    error = np.sqrt(target(lam) / PARTICLES)
    assert (np.abs(after - target(lam)) < 5 * error + 1e-3).all() == exact
