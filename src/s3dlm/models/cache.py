"""Prompt and finished blocks read once: exact for block-causal models, an approximation for others.

In a block-causal model (`TransformerConfig.causal_block`) nothing behind a block is seen from it, so
keys and values of finished blocks never change: the cache is exact, always on, and grows block by
block. In a bidirectional model the features of the prompt change with every token that is revealed
behind it. There the cache is an option that pretends they do not: keys and values are those of the
forward pass that opened the block, and later passes of the block run from its first position on.

A search's results must not depend on what it shares a batch with, so every search has its own
entries (its prompt array is its identity), and it alone decides which are kept: those that its
latest request could use.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from s3dlm.models.base import Denoiser
from s3dlm.models.layers import LENGTH_MULTIPLE, KeysValues
from s3dlm.models.transformer import Past, shift_right

if TYPE_CHECKING:
    from s3dlm.models.forward import Rows

SEARCH_BYTES = 1 << 30  # one search's entries together; rows beyond are run whole

Key = tuple[int, bytes]  # where the open block begins, and the canvas before it


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is known of a prefix."""

    layers: Tensor  # (layers, 2, heads, padded length, head)
    length: int
    last: Tensor  # (width,) features of its last position, for models that shift


@dataclass(slots=True)
class _Entries:
    """The prefixes of one search."""

    prompt: weakref.ref[np.ndarray]
    kept: dict[Key, _Entry] = field(default_factory=dict)

    def longest(self, canvas: np.ndarray, start: int) -> _Entry | None:
        """The longest known prefix of a canvas that ends before its open block."""
        fitting = [
            entry
            for (known, tokens), entry in self.kept.items()
            if known < start and tokens == canvas[:known].tobytes()
        ]
        return max(fitting, key=lambda entry: entry.length, default=None)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a call: what is run of it, and from where."""

    entries: _Entries
    key: Key
    tokens: np.ndarray  # (length,) prompt and canvas
    cut: int  # positions before it are worth keeping
    entry: _Entry | None  # what it continues from; None: the row is run whole

    @property
    def known(self) -> int:
        return 0 if self.entry is None else self.entry.length


class PrefixCache:
    """Encodes the rows of one `Forward` call at a time."""

    def __init__(self, network: Denoiser) -> None:
        self.network, self.device = network, torch.device(network.device)
        self.searches: dict[int, _Entries] = {}
        self.rows: dict[tuple[int, int], _Row] = {}  # by request and row, of the present call
        # On CPU entries are padded, so that bits do not depend on the batch; see transformer.py.
        self.multiple = LENGTH_MULTIPLE if self.device.type == "cpu" else 1

    def begin(self, requests: Sequence[Rows]) -> None:
        """Decide for every row of a call before any is run, so that batches do not matter."""
        self.searches = {key: one for key, one in self.searches.items() if one.prompt() is not None}
        self.rows.clear()
        for index, request in enumerate(requests):
            entries = self._entries(request.prompt)
            for row, canvas in enumerate(request.canvas):
                start = int(request.starts[row] if request.fixed is None else request.fixed[row])
                start = 0 if request.masked[row, :start].any() else start
                stop = self._stop(request, row)
                self.rows[index, row] = self._row(entries, request.prompt, canvas[:stop], start)
        asked: dict[int, set[Key]] = {}
        for one in self.rows.values():
            asked.setdefault(id(one.entries), set()).add(one.key)
        for entries in {id(one.entries): one.entries for one in self.rows.values()}.values():
            wanted = asked[id(entries)]
            entries.kept = {key: kv for key, kv in entries.kept.items() if key in wanted}

    def _entries(self, prompt: np.ndarray) -> _Entries:
        found = self.searches.get(id(prompt))
        if found is None or found.prompt() is not prompt:
            found = self.searches[id(prompt)] = _Entries(weakref.ref(prompt))
        return found

    def _stop(self, request: Rows, row: int) -> int:
        """What of a canvas is run: in a block-causal model nothing behind the block of the last
        wanted position, because it changes nothing."""
        length, before = int(request.canvas.shape[1]), int(request.prompt.size)
        block = self.network.causal_block
        (wanted,) = np.nonzero(request.masked[row])
        if block is None or not wanted.size:
            return length
        return min(length, (before + int(wanted[-1])) // block * block + block - before)

    def _row(self, entries: _Entries, prompt: np.ndarray, canvas: np.ndarray, start: int) -> _Row:
        cut, block = prompt.size + start, self.network.causal_block
        if block is not None:
            cut -= cut % block  # whole blocks only
            start = max(0, cut - prompt.size)  # parts of one block share its prefix
        key = (start, canvas[:start].tobytes())
        entry = entries.kept.get(key)
        if entry is None and block is not None:
            entry = entries.longest(canvas, start)
        return _Row(entries, key, np.concatenate((prompt, canvas)), cut, entry)

    def run_length(self, request: int, count: int) -> int:
        """The most positions that are run of any of the first `count` rows of a request."""
        rows = (self.rows[request, row] for row in range(count))
        return max(row.tokens.size - row.known for row in rows)

    def encode(self, places: Sequence[tuple[int, int]]) -> tuple[Tensor, np.ndarray]:
        """Features (rows, width, …) of rows named by request and row, from the first position that
        is not known; and how many positions are known of each."""
        rows = [self.rows[place] for place in places]
        groups: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            past = 0 if row.entry is None else row.entry.layers.shape[3]
            groups.setdefault(past, []).append(index)
        width = max(row.tokens.size - row.known for row in rows)
        features: Tensor | None = None
        for group in groups.values():
            found = self._run([rows[index] for index in group])
            if len(groups) == 1:
                features = found
            elif features is None:
                features = found.new_zeros(len(rows), width, found.shape[2])
            if len(groups) > 1:
                features[group, : found.shape[1]] = found
        assert features is not None
        return features, np.array([row.known for row in rows])

    def _run(self, rows: list[_Row]) -> Tensor:
        """Rows whose entries have one padded length; new prefixes leave their keys and values."""
        tokens, keys = self._padded([row.tokens[row.known :] for row in rows])
        past = self._past(rows)
        features, layers = self.network.encode_after(tokens, keys, past)
        for index, row in enumerate(rows):
            if row.cut > row.known and row.key not in row.entries.kept:
                self._keep(row, features[index], [(k[index], v[index]) for k, v in layers])
        if not self.network.shift:
            return features
        before = [row.entry.last for row in rows if row.entry is not None]
        return shift_right(features, torch.stack(before) if before else None)

    def _past(self, rows: list[_Row]) -> Past | None:
        entries = [row.entry for row in rows if row.entry is not None]
        if not entries:
            return None
        if all(entry is entries[0] for entry in entries):  # as with one search's first block
            stacked = entries[0].layers.unsqueeze(2).expand(-1, -1, len(entries), -1, -1, -1)
        else:
            stacked = torch.stack([entry.layers for entry in entries], dim=2)
        lengths = torch.tensor([entry.length for entry in entries], device=self.device)
        padded = any(entry.length < stacked.shape[4] for entry in entries)
        return Past(stacked, lengths, padded)

    def _keep(self, row: _Row, features: Tensor, layers: list[KeysValues]) -> None:
        """Keys and values up to the cut: those of the entry, then those that were just computed."""
        fresh = row.cut - row.known
        new = torch.stack([torch.stack((k[:, :fresh], v[:, :fresh])) for k, v in layers])
        if row.entry is not None:
            new = torch.cat((row.entry.layers[:, :, :, : row.known], new), 3)
        new = F.pad(new, (0, 0, 0, -row.cut % self.multiple))
        held = sum(entry.layers.nbytes for entry in row.entries.kept.values())
        if held + new.nbytes <= SEARCH_BYTES:
            row.entries.kept[row.key] = _Entry(new, row.cut, features[fresh - 1].clone())

    def _padded(self, rows: list[np.ndarray]) -> tuple[Tensor, Tensor | None]:
        sizes = np.array([row.size for row in rows])
        tokens = np.zeros((len(rows), int(sizes.max())), dtype=np.int64)
        keys = np.arange(tokens.shape[1]) < sizes[:, None]
        tokens[keys] = np.concatenate(rows)
        if keys.all() and self.device.type != "cpu":
            return torch.from_numpy(tokens).to(self.device), None
        return torch.from_numpy(tokens).to(self.device), torch.from_numpy(keys).to(self.device)


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
