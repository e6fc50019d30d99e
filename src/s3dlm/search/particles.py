"""What the search carries from step to step, and what it may ask of a diffusion process.

Arrays are batch first: one row per particle (or child), one column per position of the canvas.
A process is one prompt's denoising, whatever the kind of diffusion: the search never learns what a
mask is, which tokenizer reads the text or which benchmark asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from s3dlm.verifier.base import Spans as Spans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Partly denoised answers and how probable each known token was when it became known."""

    tokens: Ints  # (rows, length)
    logp: Floats  # (rows, length) 0 where a token is not yet known

    def take(self, rows: Ints) -> Canvas:
        return Canvas(self.tokens[rows], self.logp[rows])


@dataclass(frozen=True, slots=True)
class CleanText:
    """One-step clean predictions (Eq. 6): what the answers would be if all were revealed now."""

    tokens: Ints  # (rows, length)
    logp: Floats  # (rows, length) of each token, revealed or only predicted
    confidence: Floats  # (rows,) mean probability up to the end of the text

    def take(self, rows: Ints) -> CleanText:
        return CleanText(self.tokens[rows], self.logp[rows], self.confidence[rows])

    @classmethod
    def joined(cls, parts: Sequence[CleanText]) -> CleanText:
        """The rows of all, one part after the other."""
        return cls(
            np.concatenate([one.tokens for one in parts]),
            np.concatenate([one.logp for one in parts]),
            np.concatenate([one.confidence for one in parts]),
        )


class Process(Protocol):
    """One prompt's denoising. Predictions are opaque: made by the model, read by the process."""

    @property
    def steps(self) -> int:
        """How many denoising steps make an answer, or can at most."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether every canvas is filled at its own pace, and not by a schedule."""
        ...

    @property
    def passes(self) -> int:
        """Forward passes that the prediction of one canvas takes."""
        ...

    def ends_block(self, step: int) -> bool:
        """Whether the step is the last one of its block, by the schedule."""
        ...

    def blocks_done(self, tokens: Ints) -> int:
        """Blocks that all of these canvases have filled."""
        ...

    def known(self, tokens: Ints) -> int:
        """Positions known on the canvas of which least is known."""
        ...

    def start(self) -> Canvas:
        """The one canvas on which only what was given is known: nothing, or a text with holes."""
        ...

    def is_open(self, tokens: Ints) -> NDArray[np.bool_]:
        """Which canvases still have something to predict."""
        ...

    def ask(self, tokens: Ints, step: int, rng: np.random.Generator) -> Any:
        """The request whose answer, a prediction, lets `step` expand these canvases."""
        ...

    def expand(
        self,
        canvas: Canvas,
        prediction: Prediction,
        draw: Ints,
        step: int,
        rng: np.random.Generator,
    ) -> Canvas:
        """One child of each canvas, from the given draws of its prediction."""
        ...

    def look_ahead(self, canvas: Canvas, prediction: Prediction) -> CleanText:
        """The clean text of each canvas."""
        ...

    def sampled_look_aheads(
        self, canvas: Canvas, prediction: Prediction, usual: CleanText
    ) -> list[CleanText]:
        """Other clean texts than the usual one of each canvas, drawn from the same prediction."""
        ...

    def read(self, tokens: Ints) -> str:
        """The text of one clean canvas, up to its end."""
        ...

    def greedy(self) -> Process:
        """The same denoising without chance."""
        ...

    def movable(self, tokens: Ints) -> NDArray[np.bool_]:
        """Positions of complete texts that may be hidden again; never what was given."""
        ...

    def places(self, tokens: Ints, spans: Spans) -> NDArray[np.bool_]:
        """Positions of one complete text that hold some of these characters."""
        ...

    def hide(self, canvas: Canvas, hidden: NDArray[np.bool_]) -> Canvas:
        """The canvases with these positions unknown again."""
        ...

    def resumed(self, canvas: Canvas) -> Process:
        """The process that fills what is hidden on these canvases, at the same pace."""
        ...

    def with_block_lengths(self) -> Sequence[Process]:
        """The same denoising under several block lengths, equally many steps each."""
        ...

    def nll(self, canvas: Canvas) -> Floats:
        """Mean −log p of every token at the step that revealed it, up to the end of the text."""
        ...


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model predicts for some canvases; equal ones share a row, finished ones have none."""

    value: Any  # opaque to the search; distinct rows only
    row: Ints  # (canvases,) of the value; −1 for a finished canvas
    nfe: int  # forward passes it took

    def take(self, canvases: Ints) -> Prediction:
        return Prediction(self.value, self.row[canvases], self.nfe)


@dataclass(frozen=True, slots=True)
class Lineage:
    """What some weightings need to know of the past; each (particles,)."""

    peak: Floats  # the highest score so far
    total: Floats  # the sum of scores
    paid: Floats  # the log-potentials already multiplied in

    @classmethod
    def fresh(cls, score: Floats) -> Lineage:
        return cls(score, score, np.zeros_like(score))

    def take(self, rows: Ints) -> Lineage:
        return Lineage(self.peak[rows], self.total[rows], self.paid[rows])

    def after(self, score: Floats) -> Lineage:
        return Lineage(np.fmax(self.peak, score), self.total + score, self.paid)

    def pay(self, log_potential: Floats) -> Lineage:
        return Lineage(self.peak, self.total, self.paid + log_potential)


@dataclass(frozen=True, slots=True)
class Particles:
    """The population after a step."""

    canvas: Canvas
    prediction: Prediction
    score: Floats  # (particles,) the last known; NaN while nothing was scored
    log_weight: Floats  # (particles,) what resampling has not yet paid out
    lineage: Lineage

    def __len__(self) -> int:
        return len(self.canvas.tokens)


@dataclass(frozen=True, slots=True)
class Children:
    """All children of one step, before they are scored."""

    canvas: Canvas
    parent: Ints  # (children,) index into the particles
    parent_score: Floats
    log_weight: Floats  # inherited
    lineage: Lineage  # inherited
    gained: Floats  # (children,) log-probability of what this step revealed

    def __len__(self) -> int:
        return len(self.canvas.tokens)


def distinct(tokens: Ints) -> tuple[Ints, Ints]:
    """Index of the first of each kind of row, and for every row its kind."""
    kinds: dict[bytes, int] = {}
    kind = [kinds.setdefault(row.tobytes(), len(kinds)) for row in tokens]
    first = np.empty(len(kinds), dtype=np.int64)
    for index in range(len(kind) - 1, -1, -1):
        first[kind[index]] = index
    return first, np.asarray(kind, dtype=np.int64)


def occurrence(row: Ints) -> Ints:
    """For every entry how many equal ones stand before it, so that copies use different draws."""
    seen: dict[int, int] = {}
    result = np.empty(row.size, dtype=np.int64)
    for index, value in enumerate(row.tolist()):
        result[index] = seen.get(value, 0)
        seen[value] = int(result[index]) + 1
    return result
