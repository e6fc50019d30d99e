"""Prompt and finished blocks read once per block: an option, because it is not always exact.

In a bidirectional model the features of the prompt change with every token that is revealed behind
it. This cache pretends they do not: their keys and values are taken from the forward that opened
the block, and later forwards of the block run from its first position on. In a block-causal model
(`TransformerConfig.causal_block`) nothing behind a block is seen from it, and the cache is exact.

A search's results must not depend on its company, so every search has its own entries (its prompt
array is its identity), and it alone decides which are kept: those its latest request could use.
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

from s3dlm.models.transformer import Past, Transformer

if TYPE_CHECKING:
    from s3dlm.models.forward import Rows

SEARCH_BYTES = 1 << 30  # one search's entries together; rows beyond are forwarded whole
MULTIPLE = 16  # entries are padded to it, so that bits do not depend on company (transformer.py)

Key = tuple[int, bytes]  # where the open block begins, and the tokens before it


@dataclass(slots=True)
class _Entries:
    """Keys and values of one search's prefixes, (layers, 2, heads, padded length, head) each."""

    prompt: weakref.ref[np.ndarray]
    kept: dict[Key, Tensor] = field(default_factory=dict)
    asked: set[Key] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a call: what is forwarded of it, and from where."""

    entries: _Entries
    key: Key
    tokens: np.ndarray  # (length,) prompt and canvas
    cut: int  # positions before it are in the cache
    entry: Tensor | None  # None: not before this call, the row is forwarded whole


class PrefixCache:
    """Encodes the rows of one `Forward` call at a time."""

    def __init__(self, network: Transformer) -> None:
        self.network = network
        self.searches: dict[int, _Entries] = {}
        self.rows: dict[tuple[int, int], _Row] = {}  # by request and row, of the present call

    def begin(self, requests: Sequence[Rows]) -> None:
        """Decide for every row of a call before any is run, so that batches do not matter."""
        self.searches = {key: one for key, one in self.searches.items() if one.prompt() is not None}
        self.rows.clear()
        for index, request in enumerate(requests):
            entries = self._entries(request.prompt)
            for row, canvas in enumerate(request.canvas):
                start = int(request.starts[row])
                start = 0 if request.masked[row, :start].any() else start
                key = (start, canvas[:start].tobytes())
                entries.asked.add(key)
                whole = np.concatenate((request.prompt, canvas))
                cut = self.network.prefix_end(request.prompt.size + start)
                self.rows[index, row] = _Row(entries, key, whole, cut, entries.kept.get(key))
        for entries in {id(one.entries): one.entries for one in self.rows.values()}.values():
            entries.kept = {key: kv for key, kv in entries.kept.items() if key in entries.asked}
            entries.asked = set()

    def _entries(self, prompt: np.ndarray) -> _Entries:
        found = self.searches.get(id(prompt))
        if found is None or found.prompt() is not prompt:
            found = self.searches[id(prompt)] = _Entries(weakref.ref(prompt))
        return found

    def encode(self, places: Sequence[tuple[int, int]], width: int) -> Tensor:
        """Features (rows, width, …) of rows named by request and row; zero before their cut."""
        rows = [self.rows[place] for place in places]
        groups: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(0 if row.entry is None else row.entry.shape[3], []).append(index)
        features: Tensor | None = None
        for padded, group in groups.items():
            chosen = [rows[index] for index in group]
            found = self._rest(chosen) if padded else self._whole(chosen)
            if features is None:
                features = found.new_zeros(len(rows), width, found.shape[2])
            for index, row, one in zip(group, chosen, found, strict=True):
                first = row.cut if padded else 0
                features[index, first : row.tokens.size] = one[: row.tokens.size - first]
        assert features is not None
        return features

    def _whole(self, rows: list[_Row]) -> Tensor:
        """Rows whose prefix is new; the first with each prefix leaves its keys and values."""
        tokens, keys = self._padded([row.tokens for row in rows])
        features, layers = self.network.encode_after(tokens, keys)
        for index, row in enumerate(rows):
            if row.key in row.entries.kept or not row.cut:
                continue
            entry = torch.stack([torch.stack((k[index], v[index])) for k, v in layers])
            entry = F.pad(entry[..., : row.cut, :], (0, 0, 0, -row.cut % MULTIPLE))
            held = sum(kv.nbytes for kv in row.entries.kept.values())
            if held + entry.nbytes <= SEARCH_BYTES:
                row.entries.kept[row.key] = entry
        return features

    def _rest(self, rows: list[_Row]) -> Tensor:
        """Rows from their cut on, with entries of one padded length."""
        tokens, keys = self._padded([row.tokens[row.cut :] for row in rows])
        stacked = torch.stack([row.entry for row in rows if row.entry is not None], dim=2)
        lengths = torch.tensor([row.cut for row in rows], device=tokens.device)
        features, _ = self.network.encode_after(tokens, keys, Past(stacked, lengths))
        return features

    def _padded(self, rows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        sizes = np.array([row.size for row in rows])
        tokens = np.zeros((len(rows), int(sizes.max())), dtype=np.int64)
        keys = np.arange(tokens.shape[1]) < sizes[:, None]
        tokens[keys] = np.concatenate(rows)
        device = self.network.device
        return torch.from_numpy(tokens).to(device), torch.from_numpy(keys).to(device)
