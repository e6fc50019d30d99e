"""The likelihood of a given text under a masked diffusion model, by Monte Carlo.

A masked diffusion model has no left-to-right likelihood; what it has is the bound it was trained on
(LLaDA, Nie et al. 2025): mask l of the L answer tokens, l uniform on 1…L, and average
(L/l)·Σ log p(masked token). The mask counts are stratified over the samples, which takes most of the
noise out, and equal masks are evaluated once: a one-letter answer costs one forward pass and is exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import PromptError, SettingsError
from s3dlm.job import Job
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward
from s3dlm.models.packing import Prediction, Rows
from s3dlm.result import Result
from s3dlm.search.particles import Predict
from s3dlm.search.score import PORTION
from s3dlm.search.select import Survivor

SAMPLES = 128  # LLaDA's number
LEAST = -9999.0  # what stands for minus infinity, as in OpenAI's replies

Ints = NDArray[np.int64]
Masks = NDArray[np.bool_]
T = TypeVar("T")
Requests = Generator[Predict, Prediction, T]


def stratified_masks(length: int, samples: int, rng: np.random.Generator) -> Masks:
    """(samples, length): row i masks l of the positions, the l spread evenly over 1…length."""
    places = (rng.random() + np.arange(samples)) * length / samples
    counts = np.floor(places).astype(np.int64) % length + 1
    order = rng.random((samples, length)).argsort(axis=1).argsort(axis=1)
    masks: Masks = order < counts[:, None]
    return masks


def log_likelihood(
    model: Model,
    prompt: Sequence[int],
    answer: Sequence[int],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> float:
    """The bound on log p(answer | prompt), in nats; equal inputs give equal values."""
    if samples < 1:
        raise SettingsError(f"samples={samples} is not allowed; LLaDA uses {SAMPLES}")
    if not answer:
        return 0.0
    bounds = _bounds(model, prompt, [answer], samples, seed, "a likelihood")
    forward, request = Forward(model.denoiser), next(bounds)
    while True:
        try:
            request = bounds.send(*forward([request.rows]))
        except StopIteration as end:
            ((bound,), _) = end.value
            return float(bound)


def compare_labels(model: Model, job: Job, prompt: Ints) -> Requests[Result]:
    """The bound of every label of a job as the answer, and the likeliest of them, in the place of a
    search: its rows are forwarded with everybody's and counted. Labels of one token share one pass."""
    ids = [model.tokenizer.encode(label) for label in job.labels]
    longest, budget = model.denoiser.context - prompt.size, job.settings.budget
    for label, tokens in zip(job.labels, ids, strict=True):
        if not 0 < len(tokens) <= longest or model.denoiser.mask_id in tokens:
            size = f"label {label[:40]!r} has {len(tokens)} tokens"
            raise PromptError(f"{size}; give one of 1 to {longest} tokens, without masks")
    samples = min(SAMPLES, (budget or SAMPLES * len(ids)) // len(ids))
    if not samples:
        raise SettingsError(
            f"budget={budget} is too small for {len(ids)} labels; give one pass each"
        )

    def compare() -> Requests[Result]:  # apart, so that what is refused is refused at once
        seed = job.settings.seed
        bounds, nfe = yield from _bounds(model, prompt.tolist(), ids, samples, seed, job.label)
        logps = [max(bound, LEAST) for bound in bounds]
        labels = [
            Survivor(label, label, len(tokens), None, {}, 0.0, -logp, math.exp(logp), logp)
            for label, tokens, logp in zip(job.labels, ids, logps, strict=True)
        ]
        labels.sort(key=lambda label: label.nll)
        best, asked = labels[0].text, (job.question, job.task, job.settings)
        return Result(best, best, tuple(labels), nfe, nfe, 0.0, {}, *asked)

    return compare()


def _bounds(
    model: Model,
    prompt: Sequence[int],
    answers: Sequence[Sequence[int]],
    samples: int,
    seed: int,
    label: str,
) -> Requests[tuple[list[float], int]]:
    """The bound of every answer, and the forward passes that they took together."""
    bounds, nfe, mask_id = dict[int, float](), 0, model.denoiser.mask_id
    for length in sorted(set(map(len, answers))):
        same = [index for index, ids in enumerate(answers) if len(ids) == length]
        tokens = np.array([answers[index] for index in same])  # (answers, length)
        masks = np.array([_masks(prompt, answers[index], samples, seed) for index in same])
        canvases = np.where(masks, mask_id, tokens[:, None])  # (answers, samples, length)
        rows, place = np.unique(canvases.reshape(-1, length), axis=0, return_inverse=True)
        place, nfe = place.reshape(len(same), samples), nfe + len(rows)
        sums = np.zeros(
            place.shape
        )  # Σ log p of the masked tokens, each given all that is not masked
        for first in range(0, len(rows), PORTION):  # others take their turns between two
            part = rows[first : first + PORTION]
            asked = np.broadcast_to(tokens.T, (*part.shape, len(same)))
            logp = (yield Predict(_rows(model, prompt, part, label, asked))).asked_logp
            assert logp is not None
            answer, sample = np.nonzero((place >= first) & (place < first + len(part)))
            own_logp = logp[place[answer, sample] - first, :, answer]
            sums[answer, sample] = np.where(masks[answer, sample], own_logp, 0.0).sum(axis=1)
        means = (sums * length / masks.sum(axis=2)).mean(axis=1)
        bounds |= zip(same, means.tolist(), strict=True)
    return [bounds[index] for index in range(len(answers))], nfe


def _masks(prompt: Sequence[int], answer: Sequence[int], samples: int, seed: int) -> Masks:
    """From a random stream of the item's own, so that a value depends on nothing else."""
    digest = hashlib.sha256(repr((list(prompt), list(answer))).encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    return stratified_masks(len(answer), samples, rng)


def is_greedy(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> bool:
    """Whether greedy decoding, one token per step, gives exactly this answer."""
    forward = Forward(model.denoiser)
    canvas = np.full((1, len(answer)), model.denoiser.mask_id, dtype=np.int64)
    for _ in answer:
        request = _rows(model, prompt, canvas, "a greedy answer")
        (prediction,) = forward([request])
        surest = int(np.where(request.masked, prediction.top_logp, -np.inf).argmax())
        if prediction.top[0, surest] != answer[surest]:
            return False
        canvas[0, surest] = answer[surest]
    return True


def _rows(
    model: Model, prompt: Sequence[int], canvas: Ints, label: str, asked: Ints | None = None
) -> Rows:
    """A request for predictions at the masked positions of an answer."""
    denoiser, length = model.denoiser, len(prompt) + canvas.shape[1]
    if length > denoiser.context:
        raise PromptError(
            f"prompt and answer have {length} tokens, but {model.name} reads at most "
            f"{denoiser.context}; shorten the prompt"
        )
    masked, uniforms = canvas == denoiser.mask_id, np.zeros((*canvas.shape, 1))
    block = (0, canvas.shape[1], uniforms, 0.0, False, False)  # all of it open, nothing sampled
    return Rows(np.asarray(prompt, np.int64), canvas, masked, *block, label, asked=asked)
