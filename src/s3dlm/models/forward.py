"""Rows of many prompts in few forward passes, and of the logits only what a search needs.

A full-vocabulary tensor for every position would dwarf the model. So the head runs on masked
positions only, in chunks of bounded size, and each chunk is reduced at once: the best token and its
log-probability (the look-ahead), and for the open block as many exact samples as there can be
children (the next proposal). What leaves this file is small numpy data; no logits survive.

On a GPU nothing waits for the host before all of a batch is queued: its results come back in one
transfer, and checks that need a value are made there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser
from s3dlm.models.cache import PrefixCache
from s3dlm.models.device import Clock, free_memory, logits_room, to_host
from s3dlm.models.packing import LENGTH_MULTIPLE, Part, Place, batches, groups, halves, rows_of
from s3dlm.models.packing import Prediction as Prediction
from s3dlm.models.packing import Rows as Rows
from s3dlm.models.packing import Sampling as Sampling
from s3dlm.models.sampling import Shifted, restrict, shift

CACHE_BYTES = 1 << 20  # of logits read together on CPU
LOGIT_LIMIT = 100.0  # the paper clamps logits to ±100


class Forward:
    """Runs a denoiser on batched rows; results do not depend on what else is in the batch."""

    def __init__(
        self, denoiser: Denoiser, *, max_tokens: int | None = None, logits_bytes: int | None = None
    ) -> None:
        self.denoiser = denoiser
        self.device = torch.device(denoiser.device)
        self.on_cpu = self.device.type == "cpu"
        self.max_tokens = denoiser.tokens_at_once if max_tokens is None else max_tokens
        room = logits_room(self.device) if logits_bytes is None else logits_bytes
        self.positions = max(1, room // (4 * denoiser.vocabulary))
        # Half a dozen passes go over the logits: a few rows at a time stay in a core's cache.
        self.cache_rows = self.positions
        if self.on_cpu:
            self.cache_rows = max(2, CACHE_BYTES // (4 * denoiser.vocabulary))
        self.prefixes = PrefixCache(denoiser) if denoiser.prefix_cache else None
        self.head = denoiser.head_in_place(self.positions)
        self.clock = Clock(self.device)

    @property
    def model_seconds(self) -> float:
        """Time in the model itself; the rest of a call is batching and sampling."""
        return self.clock.seconds

    @torch.inference_mode()
    def __call__(self, requests: Sequence[Rows]) -> list[Prediction]:
        results = [Prediction.empty(request) for request in requests]
        if self.prefixes is not None:
            self.prefixes.begin(requests)
        # Guided rows are run whole, twice; a batch holds either only such rows or none.
        for guided in (False, True):
            lengths = {
                index: self._run_length(index, one)
                for index, one in enumerate(requests)
                if bool(one.sampling.guidance) == guided
            }
            for batch in batches(
                requests, lengths, self.max_tokens, mixed=self.denoiser.takes_padding
            ):
                self._run(requests, results, batch)
        return results

    def _run_length(self, index: int, request: Rows) -> int:
        """How many positions are run of a row of a request, at most."""
        if self.prefixes is None or request.sampling.guidance:
            return request.length
        return self.prefixes.run_length(index, len(request.canvas))

    def _run(self, requests: Sequence[Rows], results: list[Prediction], batch: list[Part]) -> None:
        """One batch; if memory runs out, in two halves, and later batches stay that small."""
        if self._fits(requests, results, batch):
            return
        # Here, and not inside `except`, nothing of the failed attempt is referred to any more.
        free_memory(self.device)
        count = sum(part.count for part in batch)
        if count == 1:
            raise ModelError(
                "out of memory with a single row; choose a smaller gen_length, a smaller dtype or "
                "a larger device"
            )
        width = max(requests[part.request].length for part in batch)
        self.max_tokens = min(self.max_tokens, max(1, count // 2) * width)
        for half in halves(batch):
            self._run(requests, results, half)

    def _fits(self, requests: Sequence[Rows], results: list[Prediction], batch: list[Part]) -> bool:
        try:
            read = self._predict(requests, results, batch)
        except torch.OutOfMemoryError:
            return False
        for place, arrays in read:
            place.fill(arrays)
        return True

    def _predict(
        self, requests: Sequence[Rows], results: list[Prediction], batch: list[Part]
    ) -> list[tuple[Place, list[NDArray[Any]]]]:
        """Everything that is wanted of a batch, on the host, after one transfer."""
        guided = requests[batch[0].request].sampling.guidance > 0
        plain, known = None, None
        if guided:
            features = self._encode(requests, batch)
            plain = self._encode(requests, batch, without_prompt=True).flatten(0, 1)
        elif self.prefixes is not None:
            with self.clock:
                features, known = self.prefixes.encode(rows_of(batch))
        else:
            features = self._encode(requests, batch)
        width, flat = features.shape[1], features.flatten(0, 1)
        found = groups(requests, results, batch, width, known)
        waiting = [self._read(places, flat, plain, sampled) for sampled, places in found]
        arrays = to_host(waiting)
        self.clock.settle()
        read = []
        for (_, places), (largest, *whole) in zip(found, arrays, strict=True):
            _check_finite(largest, places)
            last = 0
            for place in places:
                first, last = last, last + place.feature.size
                read.append((place, [array[first:last] for array in whole]))
        return read

    def _encode(
        self, requests: Sequence[Rows], batch: list[Part], *, without_prompt: bool = False
    ) -> Tensor:
        longest = max(requests[part.request].length for part in batch)
        width = longest
        if self.on_cpu:  # where padding to a multiple makes a row's bits its own
            width = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            width = max(longest, min(width, self.denoiser.context))
        tokens, keys = self._tokens(requests, batch, width, without_prompt)
        seen = torch.from_numpy(keys).to(self.device) if self.on_cpu or not keys.all() else None
        tensor = torch.from_numpy(tokens).to(self.device)
        with self.clock:
            return self.denoiser.encode(tensor, seen)

    def _tokens(
        self, requests: Sequence[Rows], batch: list[Part], width: int, without_prompt: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        count = sum(part.count for part in batch)
        tokens = np.zeros((count, width), dtype=np.int64)
        keys = np.zeros((count, width), dtype=np.bool_)
        first = 0
        for part in batch:
            request, last = requests[part.request], first + part.count
            size, length = request.prompt.size, request.length
            tokens[first:last, :size] = self.denoiser.mask_id if without_prompt else request.prompt
            tokens[first:last, size:length] = request.canvas[part.start : part.stop]
            keys[first:last, :length] = True
            first = last
        return tokens, keys

    def _read(
        self, places: list[Place], features: Tensor, plain: Tensor | None, sampled: bool
    ) -> list[Tensor]:
        """Reduce the features of all places of a group; the largest logit comes first."""
        index = torch.from_numpy(_joined([place.feature for place in places])).to(self.device)
        uniforms: Tensor | None = None
        if sampled:
            drawn = _joined([place.uniforms() for place in places]).astype(np.float32)
            uniforms = torch.from_numpy(drawn).to(self.device)
        request = places[0].request
        pieces = []
        for first in range(0, len(index), self.positions):
            at = slice(first, first + self.positions)
            chosen = features.index_select(0, index[at])
            without = None if plain is None else plain.index_select(0, index[at])
            some = None if uniforms is None else uniforms[at]
            pieces.append(self._reduce_logits(chosen, without, some, request))
        if len(pieces) == 1:
            return pieces[0]
        return [torch.cat(tensors) for tensors in zip(*pieces, strict=True)]

    def _reduce_logits(
        self, features: Tensor, plain: Tensor | None, uniforms: Tensor | None, request: Rows
    ) -> list[Tensor]:
        """Largest logit, best token, its log-probability; where sampled, draws and statistics."""
        sampling = request.sampling
        temperature = 0.0 if uniforms is None else request.temperature
        drawn_from = 0.0 if sampling.filtered else temperature
        largest, shifted = self._shift(features, plain, sampling, drawn_from)
        read = [largest, shifted.best, shifted.best_logp]
        if uniforms is not None:
            drawn = shifted
            if sampling.filtered:
                allowed = restrict(shifted.logits, temperature, sampling.top_k, sampling.top_p)
                drawn = shift(allowed, 1.0 if temperature else 0.0, self.cache_rows)
            tokens = drawn.sample(uniforms)
            reported = drawn if sampling.tempered else shifted
            read += [tokens, reported.logp(tokens)]
            if request.statistics:
                read += reported.statistics(self.cache_rows)
            if sampling.withheld:
                waiting = torch.tensor([sampling.withheld], device=tokens.device)
                read.append(reported.logp(waiting.expand(len(tokens), -1)).exp().sum(1))
        return read

    def _shift(
        self, features: Tensor, plain: Tensor | None, sampling: Sampling, temperature: float
    ) -> tuple[Tensor, Shifted]:
        """Each row's largest logit, and the logits within the paper's limits, read once."""
        logits = self._logits(features, plain, sampling)
        if self.on_cpu:
            shifted = shift(logits, temperature, self.cache_rows)
            if float(shifted.largest.abs().max()) <= LOGIT_LIMIT:
                return shifted.largest, shifted
            logits = self._logits(features, plain, sampling)  # seldom, so never in advance
        largest, logits = _clamped(logits)
        return largest, shift(logits, temperature, self.cache_rows)

    def _logits(self, features: Tensor, plain: Tensor | None, sampling: Sampling) -> Tensor:
        """The head's logits; the mask, ids that are no text and suppressed ids never win."""
        with self.clock:
            logits = self.head(features).float()
            if plain is not None:
                logits = logits.clone()  # the head may write the second pass into the same memory
                without = self.head(plain).float()
                logits = without + (sampling.guidance + 1) * (logits - without)
        for unwanted in (self.denoiser.mask_id, *sampling.suppressed):
            logits.select(1, unwanted).fill_(-torch.inf)
        if self.denoiser.text_vocabulary is not None:
            logits[:, self.denoiser.text_vocabulary :] = -torch.inf
        return logits


def _clamped(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's largest logit, and the logits within the paper's limits; −∞ stays."""
    never = logits == -torch.inf
    return logits.amax(1), logits.clamp_(-LOGIT_LIMIT, LOGIT_LIMIT).masked_fill_(never, -torch.inf)


def _check_finite(largest: NDArray[Any], places: Sequence[Place]) -> None:
    if np.isfinite(largest).all():
        return
    ends = np.cumsum([place.feature.size for place in places])
    first = int(np.argmax(~np.isfinite(largest)))
    label = places[int(np.searchsorted(ends, first, side="right"))].request.label
    raise ModelError(
        f"the model returned NaN or infinite logits at {label}; check the weights and dtype "
        "(float16 overflows: try bfloat16 or float32)"
    )


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
