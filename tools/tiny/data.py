"""Training data for tiny: endless, deterministic, and with masks that teach calculation.

Uniform masks seldom hide a result while its operands stay visible, so a share of the masks is
structured: results hidden, or everything after a point hidden, as decoding meets them. Sequences
are filled up with end-of-text to the longest of their batch, so no padding is ever wasted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from tools.tiny.drills import DRILLS, drills
from tools.tiny.problems import Problem, stream
from tools.tiny.tokenizer import END, MASK, chat

WINDOW = 1536  # problems that are sorted by length together
HONEST = {
    "arithmetic": 0.5,
    "chain": 0.5,
    "equations": 0.0,
    "letters": 0.0,
    "repeat": 0.0,
}  # the share of whole canvases; others a quarter
CANVAS = {"chain": 144}  # gen_length; others 64
LOWEST_RATIO = 0.15  # 1/t weighting is cut off below this mask ratio


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of equal length; `weight` is 0 where a token is visible or belongs to the prompt."""

    tokens: Tensor  # (rows, length) with masks in place
    target: Tensor  # (rows, length)
    weight: Tensor  # (rows, length)


@dataclass(frozen=True, slots=True)
class Row:
    """One encoded problem before masking."""

    prompt: list[int]
    body: list[int]
    weight: list[float]  # of the body's tokens
    results: list[list[int]]  # positions in the body of each result and of its later copies
    signs: list[int]  # positions in the body
    copied: list[int]  # where options and their letters stand in the body of a choice

    def size(self) -> int:
        return len(self.prompt) + len(self.body) + 1


class Encoder:
    """Text to rows: finds the digits that are results."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)
        self.mask = tokenizer.token_to_id(MASK)
        # A number may follow a blank or a line break; either alone is its missing tens digit.
        self.words = {n: word.lstrip("ĠĊ") for word, n in tokenizer.get_vocab().items()}
        self.breaks = {n for word, n in tokenizer.get_vocab().items() if word.startswith("Ċ")}
        self.starts = {n for w, n in tokenizer.get_vocab().items() if w[0] in "ĠĊ"}
        self.digits = {n for n, word in self.words.items() if word.isdigit() or not word}
        self.equals = {n for n, word in self.words.items() if word in ("=", "\\boxed{", "{")}
        self.signs = {n for n, word in self.words.items() if word in ("+", "-", "*", "/")}
        self.letters = {
            n for w, n in tokenizer.get_vocab().items() if w in ("ĠA", "ĠB", "ĠC", "ĠD")
        }
        self.weights = {
            **dict.fromkeys(self.digits, 1.0),
            **dict.fromkeys(self.signs, 2.0),
            **dict.fromkeys(self.letters, 3.0),
        }

    def rows(self, problems: list[Problem]) -> list[Row]:
        texts = [chat(problem.question) for problem in problems]
        prompts = self.tokenizer.encode_batch_fast(texts)
        bodies = self.tokenizer.encode_batch_fast([problem.response for problem in problems])
        return [self._row(p.ids, b.ids) for p, b in zip(prompts, bodies, strict=True)]

    def _row(self, prompt: list[int], body: list[int]) -> Row:
        results: list[list[int]] = []
        inside = False
        for position, token in enumerate(body):
            if token in self.equals:
                inside = True
                results.append([])
            elif inside and token in self.digits and token not in self.breaks:
                results[-1].append(position)
            else:
                inside = False
                if token in self.letters:
                    results.append([position])
        weight = [self.weights.get(token, 0.3) for token in body]
        results = [[*found, *self._copies(body, found)] for found in results if found]
        signs = [position for position, token in enumerate(body) if token in self.signs]
        known = {*prompt, *self.digits, *self.letters}
        choice = self.letters.intersection(body)
        copied = [position for position, token in enumerate(body) if choice and token in known]
        return Row(prompt, body, weight, results, signs, copied)

    def _copies(self, body: list[int], found: list[int]) -> list[int]:
        """Where a result is used again: left visible, it would be copied instead of calculated."""
        words = [self.words[token] for token in body]
        value = words[found[0] : found[-1] + 1]
        starts = range(found[-1] + 1, len(body) - 1) if len(value) == 2 else ()
        return [
            i
            for start in starts
            if words[start : start + 2] == value
            and body[start] in self.starts
            and body[start - 1] not in self.equals
            for i in (start, start + 1)
        ]


def results_hidden(row: Row, canvas: int, rng: np.random.Generator) -> np.ndarray:
    """For drills, whose operands nothing foretells: only results are masked."""
    mask = np.zeros(canvas, dtype=bool)
    for result in row.results:
        mask[result[:2]] = rng.random() < 0.9
    mask[row.results[0][:2]] = True
    return mask


def hidden(row: Row, canvas: int, rng: np.random.Generator) -> np.ndarray:
    """Which positions of the canvas are masked, drawn from a mixture of orders.

    Apart from hidden results, where to hide is drawn without a look at the row: else the mask would
    tell the model how long the answer is.
    """
    kind = rng.random()
    ratio = rng.random()
    if kind < 0.45 or not row.results:
        mask = rng.random(canvas) < (ratio if ratio < 0.9 else 1.0)
    elif row.copied and kind > 0.55:  # nothing but the frame: which option is it?
        mask = rng.random(canvas) < 0.3 * ratio
        mask[row.copied] = rng.random(len(row.copied)) >= rng.choice((0.0, 0.0, 0.25))
    elif kind < 0.6:
        mask = rng.random(canvas) < 0.25 * ratio
        mask[rng.integers(0, canvas * 2 // 3) :] = True
    elif kind < 0.9:
        mask = rng.random(canvas) < ratio * 0.6 * rng.random()
        first = rng.integers(0, len(row.results))
        for number, result in enumerate(row.results):
            # Either all from one on, as in decoding, or every other: each can then be calculated.
            if rng.random() < 0.5 if kind < 0.75 else number >= first:
                mask[result] = True
    else:
        mask = rng.random(canvas) < 0.2 * ratio
        for core in (*row.results, *([sign] for sign in row.signs)):
            mask[core] = rng.random() < 0.85
    if rng.random() < 0.5:  # decoding settles end-of-text first, from the far end
        mask[rng.integers(canvas // 4, canvas + 1) :] = False
    return mask


class Feed:
    """Batches of one task without end; `place` says where it is, so that it can be resumed."""

    def __init__(
        self, task: str, encoder: Encoder, size: int, seed: int, first: int = 0, stride: int = 1
    ) -> None:
        self.task, self.encoder, self.size, self.seed = task, encoder, size, seed
        self.window, self.chunk, self.stride = first, 0, stride
        self.hide = results_hidden if task in ("equations", "letters") else hidden
        self._chunks: list[Batch] = []

    @property
    def place(self) -> tuple[int, int]:
        return self.window, self.chunk

    def seek(self, window: int, chunk: int) -> None:
        self.window, self.chunk = window, chunk
        self._chunks = self._load() if chunk else []

    def next(self) -> Batch:
        if self.chunk >= len(self._chunks):
            if self._chunks:
                self.window += self.stride
            self._chunks, self.chunk = self._load(), 0
        self.chunk += 1
        return self._chunks[self.chunk - 1]

    def _load(self) -> list[Batch]:
        name = f"{self.seed}|{self.window}"
        source = (
            drills(self.task, name) if self.task in DRILLS else stream(self.task, "train", name)
        )
        rows = sorted(self.encoder.rows(list(islice(source, WINDOW))), key=Row.size)
        rng = np.random.default_rng([self.seed, self.window, len(self.task)])
        chunks = [self._batch(part, rng) for part in _parts(rows, self.size)]
        return [chunks[i] for i in rng.permutation(len(chunks))]

    def _batch(self, rows: list[Row], rng: np.random.Generator) -> Batch:
        """Whole canvases of gen_length or 128, or rows cut short to save compute.

        A short canvas would tell the model how long the answer is, so there the last token of the
        answer is always visible: a state that decoding meets only after it has settled the length.
        """
        whole = rng.random() < HONEST.get(self.task, 0.25)
        length = max(row.size() for row in rows)
        if whole:
            usual = CANVAS.get(self.task, 64)
            canvas = max(128, usual) if rng.random() < 0.08 else usual
            rows = rows[: max(4, self.size // (canvas + 32))]
            length = max(len(row.prompt) for row in rows) + canvas
        target = np.full((len(rows), length), self.encoder.end)
        hide = np.zeros((len(rows), length), dtype=bool)
        weight = np.zeros((len(rows), length), dtype=np.float32)
        for i, row in enumerate(rows):
            start, size = len(row.prompt), len(row.body)
            target[i, :start], target[i, start : start + size] = row.prompt, row.body
            mask = self.hide(row, length - start, rng)
            if not whole:
                mask[size - 1 :] = False
            if not mask.any():
                mask[rng.integers(0, size - 1)] = True
            hide[i, start:] = mask
            weight[i, start:] = _weights(row, mask)
        tokens = np.where(hide, self.encoder.mask, target)
        return Batch(*(torch.from_numpy(array) for array in (tokens, target, weight)))


def _weights(row: Row, mask: np.ndarray) -> np.ndarray:
    """Importance over mask ratio (1/t); the long tail of end-of-text counts little."""
    size = len(row.body)
    value = np.full(len(mask), 0.05, dtype=np.float32)
    value[:size] = row.weight
    value[size : size + 1] = 0.3
    ratio = max(float(mask[: size + 1].mean()), LOWEST_RATIO)
    weighted: np.ndarray = value * mask / (ratio * value.sum())
    return weighted


def _parts(rows: list[Row], size: int) -> Iterator[list[Row]]:
    """Neighbours in length, at most `size` tokens a part."""
    part: list[Row] = []
    for row in rows:
        if part and (len(part) + 1) * (row.size() + 2) > size:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
