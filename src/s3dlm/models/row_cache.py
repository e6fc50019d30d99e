"""A denoiser that keeps the features of rows it has encoded, for evaluations.

Methods and seeds that are compared on the same problems mostly meet the same canvases, because the
most confident positions are revealed first. A row's features depend on the row alone, so they can be
kept: the results are the same, to the bit where the denoiser's own do not depend on the batch, and
only the time is not what a method would have taken by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s3dlm.models.base import Denoiser

COPIED = (
    "mask_id", "vocabulary", "context", "device", "tokens_at_once", "takes_padding",
    "causal_block", "shift", "text_vocabulary",
)  # fmt: skip


class RowCache(Denoiser):
    """Encodes each distinct row once, within `capacity` bytes of features; the oldest go first."""

    def __init__(self, denoiser: Denoiser, capacity: int) -> None:
        self.denoiser, self.capacity = denoiser, capacity
        for name in COPIED:
            setattr(self, name, getattr(denoiser, name))
        self.bytes = self.asked = self.encoded = 0
        self._kept: dict[bytes, Tensor] = {}

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Features of the masked positions, which are all that is ever read; 0 elsewhere."""
        rows = tokens.cpu().numpy()
        lengths = [len(row) for row in rows] if keys is None else keys.sum(dim=1).tolist()
        names = [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]
        new = {name: index for index, name in enumerate(names) if name not in self._kept}
        found = {name: self._kept[name] for name in names if name not in new}
        if new:
            found |= self._encode_new(list(new), list(new.values()), tokens, keys)
        self.asked += len(names)
        self.encoded += len(new)
        kept = torch.cat([found[name] for name in names])
        features = kept.new_zeros((*tokens.shape, kept.shape[1]))
        features[self._wanted(tokens, keys)] = kept
        return features

    def head(self, features: Tensor) -> Tensor:
        return self.denoiser.head(features)

    def _wanted(self, tokens: Tensor, keys: Tensor | None) -> Tensor:
        masked = tokens == self.mask_id
        return masked if keys is None else masked & keys

    def _encode_new(
        self, names: list[bytes], index: list[int], tokens: Tensor, keys: Tensor | None
    ) -> dict[bytes, Tensor]:
        tokens, keys = tokens[index], None if keys is None else keys[index]
        features = self.denoiser.encode(tokens, keys)
        wanted = self._wanted(tokens, keys)
        parts = torch.split(features[wanted], wanted.sum(dim=1).tolist())
        found = {name: part.clone() for name, part in zip(names, parts, strict=True)}
        self._kept |= found
        self.bytes += sum(part.nbytes for part in found.values())
        while self.bytes > self.capacity:
            self.bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        return found
