"""Fast-dLLM's dual cache, for models that read both ways: only the open block is run.

Keys and values before *and* behind the block are those of the pass that opened it; that pass, and every
n-th after it if asked for, runs the row whole. An approximation, off by default: the block does not see
how its surroundings would have changed with it. Look-ahead reads the positions behind the block, too; they
are not run, so it gets what the last whole pass said of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from s3dlm.models.base import Past
from s3dlm.models.cache import SEARCH_BYTES, Key, PrefixCache
from s3dlm.models.packing import Batch, Ints, Rows
from s3dlm.models.sampling import shift_right


@dataclass(slots=True, eq=False)
class _Around:
    """What is known of everything but the open block."""

    layers: Tensor  # (layers, 2, heads, padded length, head), before the block and behind it
    length: int  # without padding
    before: Tensor  # (width,) features of the position before the block, for models that shift
    behind: Tensor  # (any, width) features behind it, not shifted
    used: int = 0  # in how many passes


@dataclass(frozen=True, slots=True)
class _BlockRow:
    """One row of a call: its open block, and what it stands in."""

    entries: dict[Key, _Around]
    key: Key
    tokens: Ints  # (length,) prompt and canvas
    start: int
    stop: int
    around: _Around | None  # None: the row is run whole

    @property
    def known(self) -> int:
        return 0 if self.around is None else self.start

    @property
    def run(self) -> Ints:
        return self.tokens if self.around is None else self.tokens[self.start : self.stop]


class DualCache(PrefixCache):
    """Runs the open blocks of rows; whose entries are whose is as in the prefix cache."""

    rows: dict[tuple[int, int], _BlockRow]  # type: ignore[assignment]

    def begin(self, requests: Sequence[Rows]) -> None:
        super().begin(requests)
        for around in {row.around for row in self.rows.values() if row.around is not None}:
            around.used += 1

    def _row(self, entries: dict[Key, Any], request: Rows, row: int) -> _BlockRow:  # type: ignore[override]
        prompt, canvas = request.prompt.size, request.canvas[row]
        start = int(request.starts[row] if request.fixed is None else request.fixed[row])
        start = 0 if request.masked[row, :start].any() else start
        stop = int(np.broadcast_to(np.asarray(request.stop), len(request.canvas))[row])
        key = (start, canvas[:start].tobytes() + b"|" + canvas[stop:].tobytes())
        around = entries.get(key)
        if around is not None and around.used + 1 == self.network.dual_cache:
            del entries[key]  # this pass is run whole
            around = None
        tokens = np.concatenate((request.prompt, canvas))
        return _BlockRow(entries, key, tokens, prompt + start, prompt + stop, around)

    def run_length(self, request: int, count: int) -> int:
        return max(self.rows[request, row].run.size for row in range(count))

    def encode(self, batch: Batch) -> tuple[Tensor, Ints]:
        """Features (rows, width, …) from the first position that is not known, and how many are."""
        rows = [self.rows[place] for place in batch]
        groups: dict[tuple[int, int], list[int]] = {}
        for index, row in enumerate(rows):
            room = 0 if row.around is None else row.around.layers.shape[3]
            groups.setdefault((room, row.run.size), []).append(index)
        parts: list[Tensor] = [torch.empty(0)] * len(rows)
        for group in groups.values():
            found = self._run([rows[index] for index in group])
            for index, part in zip(group, found, strict=True):
                parts[index] = part
        features = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        return features, np.array([row.known for row in rows])

    def _run(self, rows: list[_BlockRow]) -> list[Tensor]:  # type: ignore[override]
        """Rows of one length whose surroundings have one padded length."""
        tokens = torch.from_numpy(np.stack([row.run for row in rows])).to(self.device)
        arounds = [row.around for row in rows if row.around is not None]
        past = None
        if arounds:
            starts = torch.tensor([row.start for row in rows], device=self.device)
            lengths = torch.tensor([around.length for around in arounds], device=self.device)
            stacked = torch.stack([around.layers for around in arounds], dim=2)
            padded = any(around.length < stacked.shape[4] for around in arounds)
            past = Past(stacked, lengths, padded, starts)
        keys = torch.ones_like(tokens, dtype=torch.bool) if self.device.type == "cpu" else None
        features, layers = self.network.encode_after(tokens, keys, past)
        found = []
        for index, row in enumerate(rows):
            own = features[index]
            if row.around is None:
                if row.key not in row.entries:
                    self._keep(row, own, [(k[index], v[index]) for k, v in layers])
            else:
                own = torch.cat((own, row.around.behind))
            if self.network.shift:
                before = None if row.around is None else row.around.before[None]
                own = shift_right(own[None], before)[0]
            found.append(own)
        return found

    def _keep(  # type: ignore[override]
        self, row: _BlockRow, features: Tensor, layers: list[tuple[Tensor, Tensor]]
    ) -> None:
        size, start, stop = row.tokens.size, row.start, row.stop
        both = torch.stack([torch.stack((k[:, :size], v[:, :size])) for k, v in layers])
        around = torch.cat((both[:, :, :, :start], both[:, :, :, stop:]), 3)
        around = F.pad(around, (0, 0, 0, -around.shape[3] % self.multiple))
        held = sum(entry.layers.nbytes + entry.behind.nbytes for entry in row.entries.values())
        if start and held + around.nbytes <= SEARCH_BYTES:
            length = size - (stop - start)
            row.entries[row.key] = _Around(
                around, length, features[start - 1].clone(), features[stop:size].clone()
            )
