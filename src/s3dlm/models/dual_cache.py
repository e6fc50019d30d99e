"""Fast-dLLM's dual cache, for models that read both ways: only the open block is run.

Keys and values before *and* behind the block are those of the pass that opened it; that pass, and every
n-th after it if asked for, runs the row whole. An approximation, off by default: the block does not see
how its surroundings would have changed with it. Look-ahead reads the positions behind the block, too; they
are not run, so it gets what the last whole pass said of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from s3dlm.models.cache import CachedRow, CacheEntry, Key, PrefixCache, fixed_start
from s3dlm.models.packing import Rows


class DualCache(PrefixCache):
    """Runs the open blocks of rows; whose entries are whose is as in the prefix cache."""

    def begin(self, requests: Sequence[Rows]) -> None:
        super().begin(requests)
        for entry in {row.entry for row in self.rows.values() if row.entry is not None}:
            entry.used += 1

    def _row(self, entries: dict[Key, CacheEntry], request: Rows, row: int) -> CachedRow:
        prompt, canvas, start = request.prompt, request.canvas[row], fixed_start(request, row)
        stop = int(np.broadcast_to(np.asarray(request.stop), len(request.canvas))[row])
        key = (start, canvas[:start].tobytes() + b"|" + canvas[stop:].tobytes())
        entry = entries.get(key)
        if entry is not None and entry.used + 1 == self.network.dual_cache:
            del entries[key]  # this pass is run whole
            entry = None
        tokens = np.concatenate((prompt, canvas))
        return CachedRow(entries, key, tokens, prompt.size + start, entry, prompt.size + stop)

    def _entry(
        self, row: CachedRow, features: Tensor, layers: list[tuple[Tensor, Tensor]]
    ) -> CacheEntry:
        """Keys and values before the block and behind it."""
        size, start, stop = row.tokens.size, row.cut, row.stop
        whole = torch.stack([torch.stack((k[:, :size], v[:, :size])) for k, v in layers])
        around = torch.cat((whole[:, :, :, :start], whole[:, :, :, stop:]), 3)
        length = around.shape[3]
        around = F.pad(around, (0, 0, 0, -length % self.multiple))
        last, behind = features[start - 1].clone(), features[stop:size].clone()
        return CacheEntry(around, length, last, behind)
