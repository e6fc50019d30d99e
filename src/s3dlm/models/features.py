"""Features of rows that were run before: a row's features depend on the row alone.

`leave` and `recalled` are the model's side of a search's own memo (search/run.py), which decides what is
kept and counts its forward passes by it: features of masked positions, too, from which draws are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
