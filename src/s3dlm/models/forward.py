"""Many prompts' rows in few forwards, and of the logits only what a search needs.

A full-vocabulary tensor for every position would dwarf the model. So the head runs on masked
positions only, in chunks of bounded size, and each chunk is boiled down at once: the best token and
its log-probability (the look-ahead), and for the open block as many exact samples as children could
ever be wanted (the next proposal). What leaves this file is small numpy data; no logits survive.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser
from s3dlm.models.prefix import PrefixCache
from s3dlm.models.sampling import shift
from s3dlm.models.transformer import Transformer

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LENGTH_MULTIPLE = 16  # rows are padded to a multiple, so that their bits do not depend on company
PADDING_LIMIT = 0.75  # rows shorter than this share of the batch's width go into another batch
MOST_TOKENS = 16384  # of one forward, padding included, unless the denoiser knows better
CACHE_BYTES = 1 << 20  # of logits read together on CPU
LOGIT_LIMIT = 100.0  # the paper clamps logits to ±100


@dataclass(frozen=True, slots=True)
class Rows:
    """Canvases of one prompt that want a prediction, and what is wanted of it."""

    prompt: Ints  # (prompt,)
    canvas: Ints  # (rows, length)
    masked: NDArray[np.bool_]  # (rows, length) positions not yet known
    start: int | Ints  # the open block, sampled next: one for all rows, or each row its own
    stop: int | Ints
    uniforms: Floats  # (rows, block, draws) in [0, 1): one for each sample of each position
    temperature: float
    look_ahead: bool  # whether positions outside the open block are predicted too
    statistics: bool  # whether margin and entropy are wanted
    label: str  # names the prompt and step in errors

    @property
    def starts(self) -> Ints:
        """(rows,) where the open block of each row begins."""
        return np.broadcast_to(np.asarray(self.start), len(self.canvas))

    def is_in_block(self) -> NDArray[np.bool_]:
        """(rows, length) which positions belong to the open block of their row."""
        place = np.arange(self.canvas.shape[1])
        stops = np.broadcast_to(np.asarray(self.stop), len(self.canvas))
        inside: NDArray[np.bool_] = (place >= self.starts[:, None]) & (place < stops[:, None])
        return inside


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of some canvases; only masked positions that were asked for are filled."""

    top: Ints  # (rows, length) most probable token
    top_logp: Floats  # (rows, length) its log-probability
    draws: Ints  # (rows, block, draws) samples of softmax(logits / temperature)
    draws_logp: Floats  # (rows, block, draws) their untempered log-probability
    margin: Floats | None = None  # (rows, block)
    entropy: Floats | None = None  # (rows, block)


class Forward:
    """Runs a denoiser on packed rows; results do not depend on what else is in the batch."""

    def __init__(
        self, denoiser: Denoiser, *, max_tokens: int | None = None, logits_bytes: int = 1 << 26
    ) -> None:
        self.denoiser = denoiser
        self.device = getattr(denoiser, "device", torch.device("cpu"))
        usual: int = getattr(denoiser, "tokens_at_once", MOST_TOKENS)
        self.max_tokens = usual if max_tokens is None else max_tokens
        self.positions = max(1, logits_bytes // (4 * denoiser.vocabulary))
        # Half a dozen passes go over the logits: few at a time, they stay in a core's cache.
        self.at_hand = self.positions
        if self.device.type == "cpu":
            self.at_hand = max(2, CACHE_BYTES // (4 * denoiser.vocabulary))
        self.prefixes: PrefixCache | None = None
        if isinstance(denoiser, Transformer) and denoiser.prefix_cache:
            self.prefixes = PrefixCache(denoiser)
        self.head: Callable[[Tensor], Tensor] = denoiser.head
        if isinstance(denoiser, Transformer) and denoiser.plain_cpu:
            # Fresh memory is mapped page by page, which costs nearly as much as reading logits.
            rows = max(self.positions, LENGTH_MULTIPLE)
            self.head = partial(denoiser.head, out=torch.empty(rows, denoiser.vocabulary))
        self.model_seconds = 0.0  # in the model itself; the rest of a call is packing and sampling

    @torch.inference_mode()
    def __call__(self, requests: Sequence[Rows]) -> list[Prediction]:
        results = [_empty(request) for request in requests]
        if self.prefixes is not None:
            self.prefixes.begin(requests)
        for batch in _batches(requests, self.max_tokens):
            self._run(requests, results, batch)
        return results

    def _run(self, requests: Sequence[Rows], results: list[Prediction], batch: list[_Part]) -> None:
        """One batch; out of memory halves it, for good, and tries again."""
        try:
            features = self._encode(requests, batch)
        except torch.OutOfMemoryError as error:
            self.max_tokens //= 2
            if self.max_tokens < LENGTH_MULTIPLE or sum(p.stop - p.start for p in batch) == 1:
                raise ModelError(
                    "out of memory with a single row; choose a smaller gen_length, a smaller dtype "
                    "or a larger device"
                ) from error
            chosen = [requests[part.request] for part in batch]
            smaller = _batches(chosen, self.max_tokens, [(p.start, p.stop) for p in batch])
            for half in smaller:
                parts = [_Part(batch[p.request].request, p.start, p.stop) for p in half]
                self._run(requests, results, parts)
            return
        width, flat = features.shape[1], features.flatten(0, 1)
        for sampled, group in _groups(requests, results, batch, width):
            self._read(group, flat, sampled)

    def _encode(self, requests: Sequence[Rows], batch: list[_Part]) -> Tensor:
        lengths = [_length(requests[part.request]) for part in batch]
        width = -(-max(lengths) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        width = max(max(lengths), min(width, self.denoiser.context))
        if self.prefixes is not None:
            return self._encode_cached(batch, width)
        count = sum(part.stop - part.start for part in batch)
        tokens = np.zeros((count, width), dtype=np.int64)
        keys = np.zeros((count, width), dtype=np.bool_)
        first = 0
        for part, length in zip(batch, lengths, strict=True):
            request, last = requests[part.request], first + part.stop - part.start
            tokens[first:last, : request.prompt.size] = request.prompt
            tokens[first:last, request.prompt.size : length] = request.canvas[
                part.start : part.stop
            ]
            keys[first:last, :length] = True
            first = last
        started = time.perf_counter()
        features = self.denoiser.encode(
            torch.from_numpy(tokens).to(self.device), torch.from_numpy(keys).to(self.device)
        )
        self.model_seconds += time.perf_counter() - started
        return features

    def _encode_cached(self, batch: list[_Part], width: int) -> Tensor:
        assert self.prefixes is not None
        started = time.perf_counter()
        rows = [(part.request, row) for part in batch for row in range(part.start, part.stop)]
        features = self.prefixes.encode(rows, width)
        self.model_seconds += time.perf_counter() - started
        return features

    def _read(self, group: list[_Place], features: Tensor, sampled: bool) -> None:
        """Boil down the features of all places of a group, whoever asked for them."""
        index = torch.from_numpy(_joined([place.feature for place in group])).to(features.device)
        uniforms = _joined([place.uniforms() for place in group]) if sampled else None
        pieces = []
        for first in range(0, len(index), self.positions):
            at = slice(first, first + self.positions)
            drawn = None if uniforms is None else uniforms[at]
            pieces.append(self._boil(features.index_select(0, index[at]), drawn, group[0].request))
        whole = [_joined(arrays) for arrays in zip(*pieces, strict=True)]
        last = 0
        for place in group:
            first, last = last, last + place.feature.size
            place.fill([array[first:last] for array in whole])

    def _boil(self, features: Tensor, uniforms: Floats | None, request: Rows) -> list[NDArray[Any]]:
        """Best token and log-probability; where sampled, draws and what the policies may want."""
        temperature = 0.0 if uniforms is None else request.temperature
        shifted = shift(self._logits(features), temperature, self.at_hand)
        extreme = float(shifted.largest.abs().max())  # NaN if any is
        if not math.isfinite(extreme):
            raise ModelError(
                f"the model returned NaN or infinite logits at {request.label}; check the weights "
                "and dtype (float16 overflows: try bfloat16 or float32)"
            )
        if extreme > LOGIT_LIMIT:
            shifted = shift(self._logits(features, LOGIT_LIMIT), temperature, self.at_hand)
        read = [shifted.best, shifted.best_logp]
        if uniforms is not None:
            tokens = shifted.sample(torch.from_numpy(uniforms).to(shifted.logits))
            read += [tokens, shifted.logp(tokens)]
            if request.statistics:
                read += shifted.statistics(self.at_hand)
        return [tensor.cpu().numpy() for tensor in read]

    def _logits(self, features: Tensor, limit: float | None = None) -> Tensor:
        """The head's logits, within limits if they must be; the mask itself is never an answer."""
        started = time.perf_counter()
        logits = self.head(features).float()
        self.model_seconds += time.perf_counter() - started
        if limit is not None:
            logits.clamp_(-limit, limit)
        logits.select(1, self.denoiser.mask_id).fill_(-torch.inf)
        return logits


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows start…stop of one request."""

    request: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Wanted positions of one part as flat indices: where their features are, where results go."""

    request: Rows
    result: Prediction
    canvas: Ints  # (places,) into the request's rows × length
    block: Ints  # (places,) into its rows × block; of no meaning where nothing is sampled
    feature: Ints  # (places,) into the batch's rows × width

    def uniforms(self) -> Floats:
        draws = self.request.uniforms.shape[2]
        return self.request.uniforms.reshape(-1, draws)[self.block]

    def fill(self, read: Sequence[NDArray[Any]]) -> None:
        result = self.result
        result.top.reshape(-1)[self.canvas] = read[0]
        result.top_logp.reshape(-1)[self.canvas] = read[1]
        if len(read) > 2:
            draws = result.draws.shape[2]
            result.draws.reshape(-1, draws)[self.block] = read[2]
            result.draws_logp.reshape(-1, draws)[self.block] = read[3]
        if result.margin is not None and result.entropy is not None and len(read) > 4:
            result.margin.reshape(-1)[self.block] = read[4]
            result.entropy.reshape(-1)[self.block] = read[5]


def _groups(
    requests: Sequence[Rows], results: list[Prediction], batch: list[_Part], width: int
) -> list[tuple[bool, list[_Place]]]:
    """Wanted places that can be read together: (sampled, places)."""
    groups: dict[tuple[bool, float, int, bool], list[_Place]] = {}
    first = 0
    for part in batch:
        request, result = requests[part.request], results[part.request]
        kind = (request.temperature, request.uniforms.shape[2], request.statistics)
        for sampled in (True, False) if request.look_ahead else (True,):
            place = _wanted(request, result, part, first, width, sampled)
            if place.feature.size:
                key = (True, *kind) if sampled else (False, 0.0, 0, False)
                groups.setdefault(key, []).append(place)
        first += part.stop - part.start
    return [(key[0], places) for key, places in groups.items()]


def _wanted(
    request: Rows, result: Prediction, part: _Part, first: int, width: int, sampled: bool
) -> _Place:
    """Masked positions of the open block, or those outside it."""
    chosen = request.masked & (request.is_in_block() == sampled)
    rows, position = chosen[part.start : part.stop].nonzero()
    row, length = rows + part.start, request.canvas.shape[1]
    return _Place(
        request,
        result,
        row * length + position,
        row * request.uniforms.shape[1] + position - request.starts[row],
        (rows + first) * width + position + request.prompt.size,
    )


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _length(request: Rows) -> int:
    return int(request.prompt.size + request.canvas.shape[1])


def _empty(request: Rows) -> Prediction:
    shape, block = request.canvas.shape, request.uniforms.shape
    wanted = request.statistics
    return Prediction(
        top=request.canvas.copy(),
        top_logp=np.zeros(shape),
        draws=np.zeros(block, dtype=np.int64),
        draws_logp=np.zeros(block),
        margin=np.zeros(block[:2]) if wanted else None,
        entropy=np.zeros(block[:2]) if wanted else None,
    )


def _batches(
    requests: Sequence[Rows], max_tokens: int, ranges: Sequence[tuple[int, int]] | None = None
) -> Iterator[list[_Part]]:
    """Parts of similar padded length, together at most `max_tokens`; the longest rows first."""
    order = sorted(range(len(requests)), key=lambda index: -_length(requests[index]))
    batch: list[_Part] = []
    width = room = 0
    for index in order:
        start, stop = ranges[index] if ranges else (0, requests[index].canvas.shape[0])
        length = -(-_length(requests[index]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        while start < stop:
            if batch and (room < 1 or length < PADDING_LIMIT * width):
                yield batch
                batch = []
            if not batch:
                width, room = length, max(1, max_tokens // length)
            taken = min(room, stop - start)
            batch.append(_Part(index, start, start + taken))
            start, room = start + taken, room - taken
    if batch:
        yield batch
