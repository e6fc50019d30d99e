"""Training data for tiny: endless, deterministic, and with masks that teach calculation.

Uniform masks seldom hide a result while its operands stay visible, so a share of the masks is
structured: results hidden, or everything after a point hidden, as decoding meets them. Sequences
are filled up with end-of-text to the longest of their batch, so no padding is ever wasted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from tiny_tokenizer import END, MASK, chat
from tokenizers import Tokenizer
from torch import Tensor

from s3dlm.tasks.problems import Problem, stream

WINDOW = 1536  # problems that are sorted by length together
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
    results: list[list[int]]  # positions in the body, one list a result

    def size(self) -> int:
        return len(self.prompt) + len(self.body) + 1


class Encoder:
    """Text to rows: finds the digits that are results."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)
        self.mask = tokenizer.token_to_id(MASK)
        words = {number: word.lstrip("Ġ") for word, number in tokenizer.get_vocab().items()}
        # A lone blank is the missing tens digit of a number below ten.
        self.digits = {number for number, word in words.items() if word.isdigit() or not word}
        self.equals = {n for n, word in words.items() if word in ("=", "\\boxed{", "{")}
        heavy = {n for n, word in words.items() if word in ("+", "-", "*", "/", "A", "B", "C", "D")}
        self.heavy = heavy | self.digits

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
            elif inside and token in self.digits:
                results[-1].append(position)
            else:
                inside = False
        weight = [1.0 if token in self.heavy else 0.3 for token in body]
        return Row(prompt, body, weight, [result for result in results if result])


def results_hidden(row: Row, canvas: int, rng: np.random.Generator) -> np.ndarray:
    """For drills, whose operands nothing foretells: only results are masked."""
    mask = np.zeros(canvas, dtype=bool)
    for result in row.results:
        mask[result] = rng.random() < 0.9
    mask[row.results[0]] = True
    return mask


def hidden(row: Row, canvas: int, rng: np.random.Generator) -> np.ndarray:
    """Which positions of the canvas are masked, drawn from a mixture of orders."""
    length = len(row.body)
    kind = rng.random()
    ratio = rng.random()
    if kind < 0.5 or not row.results:
        mask = rng.random(canvas) < ratio
        if ratio > 0.9:
            mask[:] = True
    elif kind < 0.7:
        mask = rng.random(canvas) < 0.25 * ratio
        mask[rng.integers(0, length) :] = True
    else:
        mask = rng.random(canvas) < ratio * 0.6 * rng.random()
        for result in row.results[rng.integers(0, len(row.results)) :]:
            mask[result] = True
    tail = rng.random()  # decoding settles end-of-text first, from the far end towards the answer
    if tail < 0.4:
        mask[length:] = False
    elif tail < 0.8:
        mask[length:] = np.arange(canvas - length) < rng.integers(0, canvas - length + 1)
    if not mask.any():
        mask[rng.integers(0, length)] = True
    return mask


class Feed:
    """Batches of one task without end; `place` says where it is, so that it can be resumed."""

    def __init__(
        self, task: str, encoder: Encoder, size: int, seed: int, first: int = 0, stride: int = 1
    ) -> None:
        self.task, self.encoder, self.size, self.seed = task, encoder, size, seed
        self.window, self.chunk, self.stride = first, 0, stride
        self.hide = results_hidden if task == "drill" else hidden
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
        source = drills(name) if self.task == "drill" else stream(self.task, "train", name)
        rows = sorted(self.encoder.rows(list(islice(source, WINDOW))), key=Row.size)
        rng = np.random.default_rng([self.seed, self.window, len(self.task)])
        chunks = [self._batch(part, rng) for part in _parts(rows, self.size)]
        return [chunks[i] for i in rng.permutation(len(chunks))]

    def _batch(self, rows: list[Row], rng: np.random.Generator) -> Batch:
        """Fill up to the longest row, and now and then to a whole canvas of 64 or 128."""
        length = max(row.size() for row in rows) + int(rng.integers(0, 4))
        draw = rng.random()
        if draw < 0.15:
            canvas = 128 if draw < 0.03 else 64
            rows = rows[: max(8, self.size // (canvas + 32))]
            length = max(len(row.prompt) for row in rows) + canvas
        tokens = np.full((len(rows), length), self.encoder.end)
        target = tokens.copy()
        weight = np.zeros((len(rows), length), dtype=np.float32)
        for i, row in enumerate(rows):
            start, stop = len(row.prompt), len(row.prompt) + len(row.body)
            target[i, :start], target[i, start:stop] = row.prompt, row.body
            value = np.full(length - start, 0.05, dtype=np.float32)
            value[: len(row.body)] = row.weight
            value[len(row.body)] = 0.3
            mask = self.hide(row, length - start, rng)
            tokens[i] = target[i]
            tokens[i, start:][mask] = self.encoder.mask
            ratio = max(float(mask[: len(row.body) + 1].mean()), LOWEST_RATIO)
            weight[i, start:] = value * mask / (ratio * value.sum())
        return Batch(*(torch.from_numpy(array) for array in (tokens, target, weight)))


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


def drills(seed: str) -> Iterator[Problem]:
    """Bare equations in the shape of worked steps: the same sums as the tasks, many a row."""
    rng = random.Random(f"drill|{seed}")
    while True:
        equations = [_equation(rng) for _ in range(5)]
        text = " ".join(f"Step {number}: {line}." for number, line in enumerate(equations, 1))
        yield Problem("drill", "Step", text, "")


def _equation(rng: random.Random) -> str:
    sign = rng.choice("++--*/")
    if sign in "+-":
        total = rng.randint(3, 60)
        part = rng.randint(1, total - 1)
        return (
            f"{part} + {total - part} = {total}"
            if sign == "+"
            else f"{total} - {part} = {total - part}"
        )
    a = rng.randint(2, 12)
    b = rng.randint(2, min(12, 60 // a))
    return f"{a} * {b} = {a * b}" if sign == "*" else f"{a * b} / {a} = {b}"
