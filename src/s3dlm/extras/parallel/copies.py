"""One network on several devices: the rows of a forward pass are shared among its copies.

The children of a search are the rows of one pass, and a row's features do not depend on the others, so
a search splits where no other engine can. Only the body is shared: features come back to the first
device, where logits are read and caches live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from s3dlm.models.base import Denoiser, Past, Wrapper


class Copies(Wrapper):
    """Copies of one denoiser, each on its own device; the first stands for all."""

    def __init__(self, copies: Sequence[Denoiser]) -> None:
        super().__init__(copies[0])
        self.copies = list(copies)
        self.tokens_at_once = sum(copy.tokens_at_once for copy in copies)
        # Threads, because the host may wait in the middle of a body, as it does for experts.
        self.pool = ThreadPoolExecutor(len(copies), "copy")

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        def run(copy: Denoiser, rows: slice) -> Tensor:
            seen = None if keys is None else keys[rows].to(copy.device)
            return copy.encode(tokens[rows].to(copy.device), seen).to(self.device)

        return torch.cat(self._each(run, len(tokens)))

    def reader(self) -> Any:
        """The first one's, which then runs them all."""
        reader = self.inner.reader()
        if reader is not None:
            reader.network = self
        return reader

    def encode_after(
        self,
        tokens: Tensor,
        keys: Tensor | None,
        past: Past | None,
        opening: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        def run(copy: Denoiser, rows: slice) -> tuple[Tensor, Any]:
            seen = None if keys is None else keys[rows].to(copy.device)
            known = past and replace(
                past,
                layers=past.layers[:, :, rows].to(copy.device),
                lengths=past.lengths[rows].to(copy.device),
                starts=past.starts[rows].to(copy.device),
            )
            begins = None if opening is None else opening[rows].to(copy.device)
            features, layers = copy.encode_after(tokens[rows].to(copy.device), seen, known, begins)
            moved = [[part.to(self.device) for part in layer] for layer in layers]
            return features.to(self.device), moved

        parts = self._each(run, len(tokens))
        layers = zip(*(layers for _, layers in parts), strict=True)
        joined = [tuple(map(torch.cat, zip(*layer, strict=True))) for layer in layers]
        return torch.cat([features for features, _ in parts]), joined

    def _each(self, run: Callable[[Denoiser, slice], Any], rows: int) -> list[Any]:
        """What every copy makes of its share of the rows."""
        share = -(-rows // len(self.copies))
        parts = [slice(first, first + share) for first in range(0, rows, share)]
        inference = torch.is_inference_mode_enabled()

        def there(copy: Denoiser, part: slice) -> Any:
            with torch.inference_mode(inference):  # a thread starts without it
                return run(copy, part)

        return list(self.pool.map(there, self.copies, parts))
