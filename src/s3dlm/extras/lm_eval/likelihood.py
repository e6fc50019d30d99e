"""The likelihood of a given text under a masked diffusion model, by Monte Carlo.

A masked diffusion model has no left-to-right likelihood; what it has is the bound it was trained on
(LLaDA, Nie et al. 2025): mask l of the L answer tokens, l uniform on 1…L, and average
(L/l)·Σ log p(masked token). The mask counts are stratified over the samples, which takes most of the
noise out, and equal masks are evaluated once: a one-letter answer costs one forward pass and is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward
from s3dlm.models.packing import Rows

MASK_SAMPLES = 128  # LLaDA's number

Masks = NDArray[np.bool_]


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
    samples: int = MASK_SAMPLES,
    seed: int = 0,
) -> float:
    """The bound on log p(answer | prompt), in nats; equal inputs give equal values."""
    if samples < 1:
        raise SettingsError(f"samples={samples} is not allowed; LLaDA uses {MASK_SAMPLES}")
    if model.denoiser.mask_id < 0:
        raise SettingsError(
            f"{model.name} denoises uniform noise, and LLaDA's bound on a likelihood needs masks; choose "
            "tasks that generate text"
        )
    if not answer:
        return 0.0
    # From a random stream of the item's own, so that a value depends on nothing else.
    digest = hashlib.sha256(repr((list(prompt), list(answer))).encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    masks = stratified_masks(len(answer), samples, rng)
    canvases = np.where(masks, model.denoiser.mask_id, np.asarray(answer))
    rows, place = np.unique(canvases, axis=0, return_inverse=True)
    asked = np.broadcast_to(np.asarray(answer)[:, None], (*rows.shape, 1))
    (prediction,) = Forward(model.denoiser)([_rows(model, prompt, rows, "a likelihood", asked)])
    assert prediction.asked_logp is not None
    logp = prediction.asked_logp[place.reshape(-1), :, 0]  # given all that is not masked
    sums = np.where(masks, logp, 0.0).sum(axis=1)
    return float((sums * len(answer) / masks.sum(axis=1)).mean())


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
    model: Model,
    prompt: Sequence[int],
    canvas: NDArray[np.int64],
    label: str,
    asked: NDArray[np.int64] | None = None,
) -> Rows:
    """A request for predictions at the masked positions of an answer."""
    denoiser, length = model.denoiser, len(prompt) + canvas.shape[1]
    if length > denoiser.context:
        raise PromptError(
            f"prompt and answer have {length} tokens, but {model.name} reads at most "
            f"{denoiser.context}; shorten the prompt"
        )
    masked, uniforms = canvas == denoiser.mask_id, np.zeros((*canvas.shape, 1))
    start = np.zeros(len(canvas), np.int64)
    return Rows(
        np.asarray(prompt, np.int64), canvas, masked, start, start + canvas.shape[1], uniforms, 0.0,
        look_ahead=False, statistics=False, label=label, asked=asked,
    )  # fmt: skip
