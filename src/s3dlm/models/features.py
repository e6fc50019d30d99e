"""Features of rows that were run before: a row's features depend on the row alone.

`leave` and `recalled` are the model's side of a search's own memo (search/run.py), which decides what is
kept and counts its forward passes by it: features of masked positions, too, from which draws are made.

`RowCache` keeps the features of whole rows, for evaluations: methods and seeds that are compared on
the same problems mostly meet the same canvases, because the most confident positions are revealed
first. The results are the same, to the bit where the denoiser's own do not depend on the batch; only
the time is not what a method would have taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s3dlm.models.base import Denoiser, Wrapper
from s3dlm.models.packing import Batch, Ints, Prediction, Rows


@dataclass(frozen=True, slots=True)
class KeptRow:
    """What is left of a row's forward pass: features of the positions that were asked for."""

    features: tuple[Tensor, ...]  # (positions, width), with guidance also those without the prompt

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.features)


def leave(
    requests: Sequence[Rows], results: Sequence[Prediction], batch: Batch, width: int,
    known: Ints | None, features: Tensor, plain: Tensor | None,
) -> None:  # fmt: skip
    """Note in the results what may be kept of the rows of a batch, whose features these are."""
    for place, (index, row) in enumerate(batch):
        request = requests[index]
        if request.keep:
            begin = place * width + request.prompt.size
            begin -= 0 if known is None else int(known[place])
            at = torch.from_numpy(begin + request.masked[row].nonzero()[0]).to(features.device)
            both = (features,) if plain is None else (features, plain)
            kept = KeptRow(tuple(tensor.index_select(0, at) for tensor in both))
            results[index].kept[row] = kept  # type: ignore[index]


def recalled(request: Rows, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Features (rows, canvas, width) of rows that were run before, 0 where nothing is read; with
    guidance those without the prompt, too, but flat."""
    wanted = torch.from_numpy(request.masked[list(rows)])
    dense = []
    for parts in zip(*(request.kept[row].features for row in rows), strict=True):
        features = torch.cat(parts)
        dense.append(features.new_zeros((*wanted.shape, features.shape[1])))
        dense[-1][wanted.to(features.device)] = features
    return dense[0], dense[1].flatten(0, 1) if len(dense) > 1 else None


class RowCache(Wrapper):
    """Encodes each distinct row once, within `capacity` bytes of features; the oldest go first."""

    def __init__(self, denoiser: Denoiser, capacity: int) -> None:
        super().__init__(denoiser)
        self.capacity = capacity
        self.bytes = self.asked = self.encoded = 0
        self._kept: dict[bytes, Tensor] = {}

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Features of the masked positions, which are all that is ever read; 0 elsewhere."""
        masked = tokens == self.mask_id if keys is None else (tokens == self.mask_id) & keys
        rows = tokens.cpu().numpy()
        lengths = [len(row) for row in rows] if keys is None else keys.sum(dim=1).tolist()
        names = [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]
        new = {name: index for index, name in enumerate(names) if name not in self._kept}
        known = {name: self._kept[name] for name in names if name not in new}
        if new:
            index = list(new.values())
            encoded = self.inner.encode(tokens[index], None if keys is None else keys[index])
            parts = torch.split(encoded[masked[index]], masked[index].sum(dim=1).tolist())
            added = {name: part.clone() for name, part in zip(new, parts, strict=True)}
            known |= added
            self._kept |= added
            self.bytes += sum(part.nbytes for part in added.values())
            while self.bytes > self.capacity:
                self.bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        self.asked += len(names)
        self.encoded += len(new)
        kept = torch.cat([known[name] for name in names])
        features = kept.new_zeros((*tokens.shape, kept.shape[1]))
        features[masked] = kept
        return features
