"""Rows of many prompts in few forward passes, and of the logits only what a search needs.

A full-vocabulary tensor for every position would dwarf the model. So the head runs on masked
positions only, in chunks of bounded size, and each chunk is reduced at once: the best token and its
log-probability (the look-ahead), and for the open block as many exact samples as there can be
children (the next proposal). What leaves this file is small numpy data; no logits survive.

On a GPU nothing waits for the host before all of a batch is queued: checks that need a value are made
when its results are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser
from s3dlm.models.cache import PrefixCache, leave, recalled
from s3dlm.models.device import Clock, logits_room
from s3dlm.models.packing import LENGTH_MULTIPLE, Batch, Place, batches, groups
from s3dlm.models.packing import Prediction as Prediction
from s3dlm.models.packing import Rows as Rows
from s3dlm.models.packing import Sampling as Sampling
from s3dlm.models.sampling import AllowedTokens, Shifted, restrict, shift

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
        self.prefixes: PrefixCache | None = denoiser.reader()
        self.head = denoiser.head_in_place(self.positions)
        # What an approximate or a conditioned pass says of a canvas depends on when it is made.
        self.remembers = self.prefixes is None or self.prefixes.exact
        self.expected = denoiser.conditioned
        self.clock = Clock(self.device)

    @property
    def model_seconds(self) -> float:
        """Time in the model itself; the rest of a call is batching and sampling."""
        return self.clock.seconds

    @torch.inference_mode()
    def __call__(self, requests: Sequence[Rows]) -> list[Prediction]:
        results = [Prediction.empty(request, self.expected) for request in requests]
        if self.prefixes is not None:
            self.prefixes.begin(requests)
        # Guided rows are run whole, twice; a batch holds either only such rows or none.
        for guided in (False, True):
            lengths = {
                index: request.length
                if guided or self.prefixes is None
                else self.prefixes.run_length(index, len(request.canvas))
                for index, request in enumerate(requests)
                if bool(request.sampling.guidance) == guided
            }
            for batch in batches(requests, lengths, self.max_tokens):
                self._run(requests, results, batch)
        for index, request in enumerate(requests):
            known = [(index, row) for row in range(len(request.canvas)) if request.is_kept(row)]
            most = max(1, self.max_tokens // request.length)
            for first in range(0, len(known), most):
                self._run(requests, results, known[first : first + most])
        return results

    def _run(self, requests: Sequence[Rows], results: list[Prediction], batch: Batch) -> None:
        """One batch; if memory runs out, in two halves, and later batches stay that small."""
        with suppress(torch.OutOfMemoryError):
            for place, arrays in self._predict(requests, results, batch):
                place.fill(arrays)
            return
        # Here nothing of the failed attempt is referred to any more.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # so that a smaller batch finds one piece of memory
        if len(batch) == 1:
            raise ModelError(
                "out of memory with a single row; choose a smaller gen_length, a smaller dtype or "
                "a larger device"
            )
        half, width = len(batch) // 2, max(requests[index].length for index, _ in batch)
        self.max_tokens = min(self.max_tokens, half * width)
        self._run(requests, results, batch[:half])
        self._run(requests, results, batch[half:])

    def _predict(
        self, requests: Sequence[Rows], results: list[Prediction], batch: Batch
    ) -> list[tuple[Place, dict[str, NDArray[Any]]]]:
        """Everything that is wanted of a batch, on the host."""
        request = requests[batch[0][0]]
        guided, again = request.sampling.guidance > 0, request.is_kept(batch[0][1])
        plain, known = None, None
        if again:
            features, plain = recalled(request, [row for _, row in batch])
            known = np.full(len(batch), request.prompt.size)
        elif guided:
            features = self._encode(requests, batch)
            plain = self._encode(requests, batch, without_prompt=True).flatten(0, 1)
        elif self.prefixes is not None:
            with self.clock:
                features, known = self.prefixes.encode(batch)
        else:
            features = self._encode(requests, batch)
        width, flat = features.shape[1], features.flatten(0, 1)
        if not again and self.remembers:
            leave(requests, results, batch, width, known, flat, plain)
        found = list(groups(requests, results, batch, width, known, self.positions))
        waiting = [self._read(places, flat, plain, sampled) for sampled, places in found]
        # All of the batch is queued, so that a GPU makes the host wait here alone.
        arrays = [{name: each.cpu().numpy() for name, each in read.items()} for read in waiting]
        self.clock.settle()
        filled = []
        for (_, places), whole in zip(found, arrays, strict=True):
            largest, last = whole.pop("largest"), 0
            for place in places:
                first, last = last, last + place.feature.size
                if not np.isfinite(largest[first:last]).all():
                    raise ModelError(
                        f"the model returned NaN or infinite logits at {place.request.label}; check "
                        "the weights and dtype (float16 overflows: try bfloat16 or float32)"
                    )
                filled.append((place, {name: each[first:last] for name, each in whole.items()}))
        return filled

    def _encode(
        self, requests: Sequence[Rows], batch: Batch, *, without_prompt: bool = False
    ) -> Tensor:
        longest = max(requests[index].length for index, _ in batch)
        width = longest
        if self.on_cpu:  # where padding to a multiple makes a row's bits its own
            width = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            width = max(longest, min(width, self.denoiser.context))
        tokens = np.zeros((len(batch), width), dtype=np.int64)
        keys = np.zeros((len(batch), width), dtype=np.bool_)
        wanted = []
        for place, (index, row) in enumerate(batch):
            request, size = requests[index], requests[index].prompt.size
            tokens[place, :size] = self.denoiser.mask_id if without_prompt else request.prompt
            tokens[place, size : request.length] = request.canvas[row]
            keys[place, : request.length] = True
            wanted.append(place * width + size + request.masked[row].nonzero()[0])
        seen = torch.from_numpy(keys).to(self.device) if self.on_cpu or not keys.all() else None
        tensor = torch.from_numpy(tokens).to(self.device)
        read = torch.from_numpy(np.concatenate(wanted)).to(self.device)
        with self.clock:
            return self.denoiser.encode_some(tensor, seen, read)

    def _read(
        self, places: list[Place], features: Tensor, plain: Tensor | None, sampled: bool
    ) -> dict[str, Tensor]:
        """What is wanted of places that are read together, by the fields of `Prediction`, and the
        largest logits."""

        def together(each: Callable[[Place], NDArray[Any]]) -> Tensor:
            return torch.from_numpy(np.concatenate([*map(each, places)])).to(self.device)

        request, temperature = places[0].request, places[0].temperature
        sampling, index = request.sampling, together(lambda place: place.feature)
        limits = AllowedTokens.of(places, self.device) if sampled else None
        chosen = features.index_select(0, index)
        without = None if plain is None else plain.index_select(0, index)
        drawn_from = 0.0 if sampling.filtered else temperature
        logits = partial(self._logits, chosen, without, sampling, limits)
        largest, shifted = self._shift(logits, drawn_from)
        read = {"largest": largest, "top": shifted.best, "top_logp": shifted.best_logp}
        if not sampled:
            return read
        drawn = shifted
        if sampling.filtered:
            allowed = restrict(shifted.logits, temperature, sampling.top_k, sampling.top_p)
            drawn = shift(allowed, 1.0 if temperature else 0.0, self.cache_rows)
        uniforms = together(lambda place: place.of_request("uniforms").astype(np.float32))
        tokens = drawn.sample(uniforms)
        reported = drawn if sampling.tempered else shifted
        read |= {"draws": tokens, "draws_logp": reported.logp(tokens)}
        if request.statistics:
            read["margin"], read["entropy"] = reported.statistics(self.cache_rows)
        if sampling.deferred:
            waiting = torch.tensor([sampling.deferred], device=self.device)
            read["deferred"] = reported.logp(waiting.expand(len(tokens), -1)).exp().sum(1)
        if request.asked is not None:
            asked = together(lambda place: place.of_request("asked"))
            read["asked_logp"] = shifted.logp(asked)
        if self.expected:
            read["vectors"] = self.denoiser.expected(reported.logits.softmax(-1)).float()
        return read

    def _shift(self, read: Callable[[], Tensor], temperature: float) -> tuple[Tensor, Shifted]:
        """Each row's largest logit, and the logits within the paper's limits, read once."""
        logits = read()
        if self.on_cpu:
            shifted = shift(logits, temperature, self.cache_rows)
            if float(shifted.largest.abs().max()) <= LOGIT_LIMIT:
                return shifted.largest, shifted
            logits = read()  # seldom, so never in advance
        largest, never = logits.amax(1), logits == -torch.inf
        logits = logits.clamp_(-LOGIT_LIMIT, LOGIT_LIMIT).masked_fill_(never, -torch.inf)
        return largest, shift(logits, temperature, self.cache_rows)

    def _logits(
        self,
        features: Tensor,
        plain: Tensor | None,
        sampling: Sampling,
        limits: AllowedTokens | None,
    ) -> Tensor:
        """The head's logits; the mask, ids that are no text, suppressed ids and those that a limit
        excludes never win."""
        with self.clock:
            logits = self.head(features).float()
            if plain is not None:
                logits = logits.clone()  # the head may write the second pass into the same memory
                without = self.head(plain).float()
                logits = without + (sampling.guidance + 1) * (logits - without)
        masks = (self.denoiser.mask_id,) if self.denoiser.mask_id >= 0 else ()
        for unwanted in (*masks, *sampling.suppressed):
            logits.select(1, unwanted).fill_(-torch.inf)
        if self.denoiser.text_vocabulary is not None:
            logits[:, self.denoiser.text_vocabulary :] = -torch.inf
        if limits is not None:
            limits.apply(logits)
        return logits
