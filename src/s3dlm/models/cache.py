"""What was computed before, and why it never lets a search's company change its results.

`PrefixCache` is for block-causal models: it reads prompt and finished blocks once. Nothing behind a block
is seen from it, so keys and values of finished blocks never change: the cache is exact, always on, and
grows block by block. Every search has its own entries (its prompt array is its identity), and it alone
decides which are kept: those that its latest request could use.

`DualCache` is Fast-dLLM's, for models that read both ways: an approximation that is off by default. There
the features of all other positions change with every token of a block that is revealed; the cache
pretends that they do not.

`leave` and `recalled` are for rows that come back whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s3dlm.models.base import Denoiser, Past
from s3dlm.models.packing import LENGTH_MULTIPLE, Batch, Ints, Prediction, Rows
from s3dlm.models.sampling import shift_right

SEARCH_BYTES = 1 << 30  # one search's entries together; rows beyond are run whole

EntryKey = tuple[int, bytes]  # where the open block begins, and the canvas before it


@dataclass(slots=True, eq=False)
class CacheEntry:
    """What is known of a row: of a prefix, or of all but an open block."""

    layers: Tensor  # (layers, 2, heads, padded length, head)
    length: int  # without padding
    last: Tensor  # (width,) features of the position before what is run, for models that shift
    behind: Tensor | None = None  # (any, width) features behind the open block, not shifted
    used: int = 0  # in how many passes

    @property
    def nbytes(self) -> int:
        return self.layers.nbytes + (0 if self.behind is None else self.behind.nbytes)


@dataclass(frozen=True, slots=True)
class CachedRow:
    """One row of a call: what is run of it, and from where."""

    entries: dict[EntryKey, CacheEntry]  # of its search
    key: EntryKey
    tokens: Ints  # (length,) prompt and canvas
    cut: int  # positions before it are worth keeping
    entry: CacheEntry | None  # what it continues from; None: the row is run whole
    stop: int | None = None  # the end of the open block, if that alone is run

    @property
    def known(self) -> int:
        """Positions before those that are run."""
        if self.entry is None:
            return 0
        return self.entry.length if self.stop is None else self.cut

    @property
    def run(self) -> Ints:
        return self.tokens if self.entry is None else self.tokens[self.known : self.stop]

    @property
    def group(self) -> tuple[int, int]:
        """Rows that run together have entries of one padded length, and open blocks have one length."""
        past = 0 if self.entry is None else self.entry.layers.shape[3]
        return past, 0 if self.stop is None else self.run.size


class PrefixCache:
    """Encodes the rows of one `Forward` call at a time."""

    exact = True

    def __init__(self, network: Denoiser) -> None:
        self.network, self.device = network, torch.device(network.device)
        self.searches: dict[int, dict[EntryKey, CacheEntry]] = {}  # by the id of the prompt array
        self.rows: dict[tuple[int, int], CachedRow] = {}  # by request and row, of this call
        # On CPU entries are padded, so that bits do not depend on the batch.
        self.multiple = LENGTH_MULTIPLE if self.device.type == "cpu" else 1

    def begin(self, requests: Sequence[Rows]) -> None:
        """Decide for every row of a call before any is run, so that batches do not matter."""
        self.rows.clear()
        wanted: dict[int, set[EntryKey]] = {}
        for index, request in enumerate(requests):
            search = id(request.prompt)
            if search not in self.searches:
                self.searches[search] = {}
                weakref.finalize(request.prompt, self.searches.pop, search, None).atexit = False
            for number in range(len(request.canvas)):
                row = self._row(self.searches[search], request, number)
                self.rows[index, number] = row
                wanted.setdefault(search, set()).add(row.key)
        for search, keys in wanted.items():
            for key in self.searches[search].keys() - keys:
                del self.searches[search][key]

    def _row(self, entries: dict[EntryKey, CacheEntry], request: Rows, row: int) -> CachedRow:
        prompt, canvas, block = request.prompt, request.canvas[row], self.network.causal_block
        assert block is not None
        start = fixed_start(request, row)
        # Blocks may begin behind the prompt.
        counted = 0 if self.network.causal_prefix else prompt.size
        (masked,) = np.nonzero(request.masked[row])
        if masked.size:  # nothing behind the last block changes anything
            end = (counted + int(masked[-1])) // block * block + block
            canvas = canvas[: end - counted]
        cut = prompt.size + start - (counted + start) % block  # whole blocks only
        start = max(0, cut - prompt.size)  # parts of one block share its prefix
        key = (start, canvas[:start].tobytes())
        entry = entries.get(key)
        if entry is None:  # the longest prefix that ends before the block
            fitting = [
                entry
                for (known, tokens), entry in entries.items()
                if known < start and tokens == canvas[:known].tobytes()
            ]
            entry = max(fitting, key=lambda entry: entry.length, default=None)
        return CachedRow(entries, key, np.concatenate((prompt, canvas)), cut, entry)

    def run_length(self, request: int, count: int) -> int:
        """The most positions that are run of any of the first `count` rows of a request."""
        return max(self.rows[request, row].run.size for row in range(count))

    def encode(self, batch: Batch) -> tuple[Tensor, Ints]:
        """Features (rows, width, …) of rows, from the first position that is not known; and how many
        positions are known of each."""
        rows = [self.rows[place] for place in batch]
        groups: dict[tuple[int, int], list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(row.group, []).append(index)
        parts = [self._run([rows[index] for index in group]) for group in groups.values()]
        features = parts[0]
        if len(groups) > 1:
            width = max(part.shape[1] for part in parts)
            features = parts[0].new_zeros(len(rows), width, parts[0].shape[2])
            for group, part in zip(groups.values(), parts, strict=True):
                features[group, : part.shape[1]] = part
        return features, np.array([row.known for row in rows])

    def _run(self, rows: list[CachedRow]) -> Tensor:
        """Rows of one group; those that are new leave their keys and values."""
        sizes = np.array([row.run.size for row in rows])
        tokens = np.zeros((len(rows), int(sizes.max())), dtype=np.int64)
        keys = np.arange(tokens.shape[1]) < sizes[:, None]
        tokens[keys] = np.concatenate([row.run for row in rows])
        begins, opening = np.array([row.cut - row.known for row in rows]), None
        if self.network.causal_prefix and begins.any():
            opening = torch.from_numpy(begins).to(self.device)
        unmasked = keys.all() and self.device.type != "cpu"
        entries = [row.entry for row in rows if row.entry is not None]
        features, layers = self.network.encode_after(
            torch.from_numpy(tokens).to(self.device),
            None if unmasked else torch.from_numpy(keys).to(self.device),
            self._past(entries, [row.known for row in rows]) if entries else None,
            opening,
        )
        for index, row in enumerate(rows):
            if row.cut > row.known and row.key not in row.entries:
                entry = self._entry(row, features[index], [(k[index], v[index]) for k, v in layers])
                held = sum(other.nbytes for other in row.entries.values())
                if held + entry.nbytes <= SEARCH_BYTES:
                    row.entries[row.key] = entry
        behind = [entry.behind for entry in entries if entry.behind is not None]
        if behind:
            whole = [torch.cat(pair) for pair in zip(features, behind, strict=True)]
            features = pad_sequence(whole, batch_first=True)
        if not self.network.shift:
            return features
        last = torch.stack([entry.last for entry in entries]) if entries else None
        return shift_right(features, last)

    def _past(self, entries: list[CacheEntry], starts: list[int]) -> Past:
        if all(entry is entries[0] for entry in entries):  # as with one search's first block
            stacked = entries[0].layers.unsqueeze(2).expand(-1, -1, len(entries), -1, -1, -1)
        else:
            stacked = torch.stack([entry.layers for entry in entries], dim=2)
        lengths = torch.tensor([entry.length for entry in entries], device=self.device)
        padded = any(entry.length < stacked.shape[4] for entry in entries)
        return Past(stacked, lengths, torch.tensor(starts, device=self.device), padded)

    def _entry(
        self, row: CachedRow, features: Tensor, layers: list[tuple[Tensor, Tensor]]
    ) -> CacheEntry:
        """Keys and values up to the cut: those of the entry, then those that were just computed."""
        new = row.cut - row.known
        stacked = torch.stack([torch.stack((k[:, :new], v[:, :new])) for k, v in layers])
        if row.entry is not None:
            stacked = torch.cat((row.entry.layers[:, :, :, : row.known], stacked), 3)
        stacked = F.pad(stacked, (0, 0, 0, -row.cut % self.multiple))
        return CacheEntry(stacked, row.cut, features[new - 1].clone())


def fixed_start(request: Rows, row: int) -> int:
    """Where the open block of a row begins; 0 if a mask is before it."""
    start = int(request.start[row])
    return 0 if request.masked[row, :start].any() else start


class DualCache(PrefixCache):
    """Runs the open blocks of rows alone; whose entries are whose is as in the prefix cache.

    Keys and values before *and* behind the block are those of the pass that opened it; that pass, and
    every n-th after it if asked for, runs the row whole. The block does not see how its surroundings
    would have changed with it. Look-ahead reads the positions behind the block, too; they are not run,
    so it gets what the last whole pass said of them.

    Args:
        network: Reads both ways.
        every: Which pass of a block runs the row whole again; 0: none but the first.
    """

    exact = False

    def __init__(self, network: Denoiser, every: int) -> None:
        super().__init__(network)
        self.every = every

    def begin(self, requests: Sequence[Rows]) -> None:
        super().begin(requests)
        for entry in {row.entry for row in self.rows.values() if row.entry is not None}:
            entry.used += 1

    def _row(self, entries: dict[EntryKey, CacheEntry], request: Rows, row: int) -> CachedRow:
        prompt, canvas, start = request.prompt, request.canvas[row], fixed_start(request, row)
        stop = int(request.stop[row])
        key = (start, canvas[:start].tobytes() + b"|" + canvas[stop:].tobytes())
        entry = entries.get(key)
        if entry is not None and entry.used + 1 == self.every:
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


# --- whole rows, for a search's own memo (search/run.py), which decides what is kept and counts passes by it


def leave(
    requests: Sequence[Rows], results: Sequence[Prediction], batch: Batch, width: int,
    known: Ints | None, features: Tensor, plain: Tensor | None,
) -> None:  # fmt: skip
    """Note in the results what may be kept of the rows of a batch, whose features these are: those of
    masked positions (1, positions, width), from which draws are made; with guidance (2, positions,
    width), the second ones without the prompt."""
    both = (features,) if plain is None else (features, plain)
    for place, (index, row) in enumerate(batch):
        request = requests[index]
        if request.kept is not None:
            begin = place * width + request.prompt.size
            begin -= 0 if known is None else int(known[place])
            at = torch.from_numpy(begin + request.masked[row].nonzero()[0]).to(features.device)
            results[index].kept[row] = torch.stack([flat.index_select(0, at) for flat in both])  # type: ignore[index]


def recalled(request: Rows, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Features (rows, canvas, width) of rows that were run before, 0 where nothing is read; with
    guidance those without the prompt, too, but flat."""
    assert request.kept is not None
    features = torch.cat([request.kept[row] for row in rows], 1)
    wanted = torch.from_numpy(request.masked[list(rows)]).to(features.device)
    dense = features.new_zeros(len(features), *wanted.shape, features.shape[2])
    dense[:, wanted] = features
    return dense[0], dense[1].flatten(0, 1) if len(dense) > 1 else None
