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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s3dlm.errors import PromptError, SettingsError
from s3dlm.job import Job
from s3dlm.models.base import Model
from s3dlm.models.packing import Prediction, Rows
from s3dlm.result import Result
from s3dlm.search.particles import Predict
from s3dlm.search.score import PORTION
from s3dlm.search.select import Survivor

SAMPLES = 128  # LLaDA's number
MAX_TOKENS = 16384  # per forward pass
LEAST = -9999.0  # what stands for minus infinity, as in OpenAI's replies
POSITIONS = 4096  # whose logits are held at once

Masks = NDArray[np.bool_]
Comparison = Generator[Predict, Prediction, Result]


def stratified_masks(length: int, samples: int, rng: np.random.Generator) -> Masks:
    """(samples, length): row i masks l of the positions, the l spread evenly over 1…length."""
    places = (rng.random() + np.arange(samples)) * length / samples
    counts = np.floor(places).astype(np.int64) % length + 1
    order = rng.random((samples, length)).argsort(axis=1).argsort(axis=1)
    masks: Masks = order < counts[:, None]
    return masks


def distinct_masks(
    prompt: Sequence[int], answer: Sequence[int], samples: int, seed: int
) -> tuple[Masks, NDArray[np.int64]]:
    """The masks of an answer, and how often each was drawn."""
    # A random stream per item, so that a value depends on nothing else.
    digest = hashlib.sha256(repr((list(prompt), list(answer))).encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    masks = stratified_masks(len(answer), samples, rng)
    return np.unique(masks, axis=0, return_counts=True)


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
    masks, weights = distinct_masks(prompt, answer, samples, seed)
    expected = np.asarray(answer, dtype=np.int64)
    sums = np.zeros(len(masks))  # Σ log p of the masked tokens, each given all that is not masked
    size = max(1, MAX_TOKENS // (len(prompt) + len(answer)))
    for first in range(0, len(masks), size):
        part = masks[first : first + size]
        tokens = np.where(part, model.denoiser.mask_id, expected)
        logp = _logp(model, prompt, tokens, part, expected)
        np.add.at(sums, first + np.nonzero(part)[0], logp.double().cpu().numpy())
    return float((weights * sums * len(answer) / masks.sum(axis=1)).sum() / samples)


def compare_labels(model: Model, job: Job, prompt: NDArray[np.int64]) -> Comparison:
    """The bound of every label of a job as the answer, and the likeliest of them, in the place of a
    search: its rows are forwarded with everybody's and counted. Labels of one token share one pass."""
    ids = [model.tokenizer.encode(label) for label in job.labels]
    longest, budget = model.denoiser.context - prompt.size, job.settings.budget
    for label, own in zip(job.labels, ids, strict=True):
        if not 0 < len(own) <= longest or model.denoiser.mask_id in own:
            size = f"label {label[:40]!r} has {len(own)} tokens"
            raise PromptError(f"{size}; give one of 1 to {longest} tokens, without masks")
    samples = min(SAMPLES, (budget or SAMPLES * len(ids)) // len(ids))
    if not samples:
        raise SettingsError(
            f"budget={budget} is too small for {len(ids)} labels; give one pass each"
        )
    return _compare(model.denoiser.mask_id, job, prompt, ids, samples)


def _compare(
    mask_id: int, job: Job, prompt: NDArray[np.int64], ids: list[list[int]], samples: int
) -> Comparison:
    values, nfe = dict[int, float](), 0
    for length in sorted(set(map(len, ids))):
        same = [index for index, own in enumerate(ids) if len(own) == length]
        tokens = np.array([ids[index] for index in same])
        drawn = [distinct_masks(prompt.tolist(), ids[i], samples, job.settings.seed) for i in same]
        pairs = zip(drawn, tokens, strict=True)
        canvases = np.concatenate([np.where(masks, mask_id, own) for (masks, _), own in pairs])
        rows, place = np.unique(canvases, axis=0, return_inverse=True)
        nfe, parts, last = nfe + len(rows), [], 0
        for first in range(0, len(rows), PORTION):  # others take their turns between two
            part = rows[first : first + PORTION]
            asked = np.broadcast_to(tokens.T, (*part.shape, len(same)))
            uniforms, masked = np.zeros((*part.shape, 1)), part == mask_id
            block = (0, length, uniforms, 0.0, False, False)  # all of it open, nothing sampled
            request = Rows(prompt, part, masked, *block, job.label, asked=asked)
            parts.append((yield Predict(request)).asked_logp)
        logp: NDArray[np.float64] = np.concatenate(parts)  # type: ignore[arg-type]
        for column, (index, (masks, weights)) in enumerate(zip(same, drawn, strict=True)):
            first, last = last, last + len(masks)
            own = logp[place.reshape(-1)[first:last], :, column]
            sums = np.where(masks, own, 0.0).sum(axis=1)  # each given all that is not masked
            bound = (weights * sums * length / masks.sum(axis=1)).sum() / samples
            values[index] = max(float(bound), LEAST)
    labels = [
        Survivor(
            label, label, len(ids[i]), None, {}, 0.0, -values[i], math.exp(values[i]), values[i]
        )
        for i, label in enumerate(job.labels)
    ]
    labels.sort(key=lambda label: label.nll)
    best, settings = labels[0].text, job.settings
    return Result(best, best, tuple(labels), nfe, nfe, 0.0, {}, job.question, job.task, settings)


def is_greedy(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> bool:
    """Whether greedy decoding, one token per step, gives exactly this answer."""
    tokens = np.full(len(answer), model.denoiser.mask_id, dtype=np.int64)
    for _ in answer:
        masked = tokens == model.denoiser.mask_id
        logp = _logp(model, prompt, tokens[None], masked[None])
        best, token = (value.cpu().numpy() for value in logp.max(dim=1))
        surest = int(best.argmax())
        position = np.flatnonzero(masked)[surest]
        if token[surest] != answer[position]:
            return False
        tokens[position] = answer[position]
    return True


@torch.inference_mode()
def _logp(
    model: Model,
    prompt: Sequence[int],
    tokens: NDArray[np.int64],
    masks: Masks,
    expected: NDArray[np.int64] | None = None,
) -> Tensor:
    """Log-probabilities at the masked positions: of all tokens, or of the expected ones alone."""
    denoiser, length = model.denoiser, len(prompt) + tokens.shape[1]
    if length > denoiser.context:
        raise PromptError(
            f"prompt and answer have {length} tokens, but {model.name} reads at most "
            f"{denoiser.context}; shorten the prompt"
        )
    start = np.tile(np.asarray(prompt, dtype=np.int64), (len(tokens), 1))
    rows = torch.from_numpy(np.concatenate([start, tokens], axis=1)).to(denoiser.device)
    features = denoiser.encode(rows)
    row, column = np.nonzero(masks)
    pieces = []
    for first in range(0, row.size, POSITIONS):
        at = slice(first, first + POSITIONS)
        logits = denoiser.head(features[row[at], column[at] + len(prompt)]).float()
        logits[:, denoiser.mask_id] = -torch.inf  # the mask is never an answer
        logp = logits.log_softmax(dim=1)
        if expected is not None:
            chosen = torch.from_numpy(expected[column[at]]).to(logp.device)
            logp = logp.gather(1, chosen[:, None])[:, 0]
        pieces.append(logp)
    return torch.cat(pieces)
