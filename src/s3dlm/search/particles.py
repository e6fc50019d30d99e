"""What the search carries from step to step, and what it may ask of a diffusion process.

Arrays are batch first: one row per particle (or child), one column per position of the canvas.
A process is one prompt's denoising, whatever the kind of diffusion: the search never learns what a
mask is, what noise is, which tokenizer reads the text or which benchmark asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from s3dlm.inputs import Registry

if TYPE_CHECKING:  # what passes through a search unread
    from s3dlm.diffusion.blocks import TextReader
    from s3dlm.models.packing import Prediction, Rows
    from s3dlm.search.score import Scores

PORTION = (
    64  # texts that are made, read and verified in one go, unless a verifier takes many at once
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


Reply = TypeVar("Reply")


class Request(Generic[Reply]):
    """What a search waits for; awaiting it hands it to whoever drives the search, who replies."""

    __slots__ = ()

    def __await__(self) -> Generator[Request[Any], Any, Reply]:
        reply: Reply = yield self
        return reply

    @property
    def forwards(self) -> Sequence[Rows]:
        """What the model runs for it."""
        return ()

    def reply(self, predictions: Sequence[Prediction]) -> Reply:
        """The reply, once the model has run that."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Columns:
    """Arrays that all have one entry per canvas."""

    def take(self, rows: Ints | slice) -> Self:
        return type(self)(*[getattr(self, name)[rows] for name in self.names()])

    @classmethod
    def names(cls) -> Sequence[str]:
        return cls.__slots__

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of all, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*[np.concatenate([getattr(x, name) for x in parts]) for name in cls.names()])

    def put(self, rows: Ints, others: Self) -> None:
        """Other rows in the place of these."""
        for name in self.names():
            getattr(self, name)[rows] = getattr(others, name)


class State(Protocol):
    """What a canvas holds beside its known tokens: noise, for example, or what conditions the next pass.
    Children inherit it and survivors copy it; only the process reads it."""

    @property
    def key(self) -> bytes:
        """Equal where the model's next prediction is."""


@dataclass(frozen=True, slots=True)
class Canvas(Columns):
    """Partly denoised answers and how probable each known token was when it became known."""

    tokens: Ints  # (rows, length)
    logp: Floats  # (rows, length) 0 where a token is not yet known
    state: NDArray[np.object_] = field(default_factory=lambda: np.zeros(0, np.object_))
    """(rows,) what the process has to know of each beside its tokens (`State`); None: nothing."""

    def __post_init__(self) -> None:
        if self.state.size != len(self.tokens):
            object.__setattr__(self, "state", np.full(len(self.tokens), None))

    def keys(self) -> list[bytes]:
        """Of each canvas what its prediction depends on: equal keys, equal predictions."""
        rows = zip(self.tokens, self.state.tolist(), strict=True)
        return [row.tobytes() + (state.key if state else b"") for row, state in rows]


@dataclass(frozen=True, slots=True)
class CleanText(Columns):
    """One-step clean predictions (Eq. 6): what the answers would be if all were revealed now."""

    tokens: Ints  # (rows, length)
    logp: Floats  # (rows, length) of each token, revealed or only predicted
    confidence: Floats  # (rows,) mean probability up to the end of the text


@dataclass(frozen=True, slots=True)
class CanvasPredictions:
    """What the model predicts for some canvases; equal ones share a row, finished ones have none."""

    value: Prediction | None  # of the distinct canvases that are not finished; None: there are none
    row: Ints  # (canvases,) of the value; −1 for a finished canvas

    def take(self, canvases: Ints) -> CanvasPredictions:
        return CanvasPredictions(self.value, self.row[canvases])


@dataclass(frozen=True, slots=True)
class Predict(Request["Prediction"]):
    """A search's request for one forward pass of these rows; the reply is their prediction."""

    rows: Rows  # distinct, and none of them finished

    @property
    def forwards(self) -> Sequence[Rows]:
        return (self.rows,)

    def reply(self, predictions: Sequence[Prediction]) -> Prediction:
        return predictions[0]


class Progress(NamedTuple):
    """How far the slowest of some canvases is."""

    done: int  # steps, or known positions where every canvas is filled at its own pace
    total: int
    blocks: int  # that all of them have filled


class Process(Protocol):
    """One prompt's denoising. Predictions are opaque: made by the model, read by the process."""

    @property
    def prompt(self) -> Ints:
        """The prompt's tokens."""

    @property
    def reader(self) -> TextReader:
        """Reads the canvases as text, and says which of their tokens were given and which count."""

    @property
    def steps(self) -> int:
        """How many denoising steps make an answer, or can at most."""

    @property
    def passes(self) -> int:
        """Forward passes that the prediction of one canvas takes."""

    def start(self, size: int, rng: np.random.Generator) -> Canvas:
        """Canvases on which only what was given is known: nothing, or a text with holes."""

    def is_open(self, canvas: Canvas) -> Bools:
        """Which canvases still have something to predict."""

    def progress(self, canvas: Canvas, step: int) -> Progress:
        """How far these canvases are: by the schedule with this step, or as they are."""

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        """The rows whose prediction lets `step` expand these canvases."""

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        """One child of each canvas, from the given draws of its prediction."""

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        """The likeliest clean text of each canvas, then others drawn from the same prediction, in portions of
        one or several of each; they are made when they are asked for."""

    def greedy(self) -> Process:
        """The same denoising, deterministic."""

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[Process, Canvas]:
        """The canvases with these positions unknown again, but for what was given, and the process
        that fills them at the same pace."""


# What makes a job's process, by the kind of diffusion that a model names (`Denoiser.diffusion`), or for
# answers that follow a grammar; called with the model, the job and the prompt's tokens.
PROCESSES: Registry[Callable[[Any, Any, Ints], Process]] = Registry(
    "diffusion", "s3dlm.processes", object
)
WITH_GRAMMAR = "with_grammar"


@dataclass(frozen=True, slots=True)
class Particles:
    """The population after a step."""

    canvas: Canvas
    prediction: CanvasPredictions
    clean: CleanText
    scores: Scores  # of the clean texts
    history: (
        Floats  # (particles, 1 + steps that were scored) each lineage's scores; NaN: not scored
    )
    log_weight: Floats  # (particles,) what resampling has not yet paid out
    open: bool = True  # whether there is a step to come

    def __len__(self) -> int:
        return len(self.canvas.tokens)


@dataclass(frozen=True, slots=True)
class Children:
    """All children of one step."""

    canvas: Canvas
    parent: Ints  # (children,) index into the particles
    particles: Particles  # whose children they are
    slots: int  # forward passes that they take without sharing
    branched: bool  # whether the method scores and resamples now, if it ever does
    done: float  # how much of the search is, from 0 to 1
    last: bool

    def __len__(self) -> int:
        return len(self.canvas.tokens)

    @property
    def log_weight(self) -> Floats:
        """(children,) inherited from their parents."""
        return self.particles.log_weight[self.parent]

    @property
    def history(self) -> Floats:
        """(children, scored before) the scores of their lineages before this step."""
        return self.particles.history[self.parent]

    @property
    def step_logp(self) -> Floats:
        """(children,) log-probability of what this step revealed."""
        before = self.particles.canvas.logp.sum(axis=1)
        return np.asarray(self.canvas.logp.sum(axis=1) - before[self.parent])


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the model predicts for the children of a step."""

    prediction: CanvasPredictions
    looks: Iterator[
        CleanText
    ]  # of each child the likeliest clean text, then sampled ones in portions


@dataclass(frozen=True, slots=True)
class Looked:
    """What each child would say if it were complete, and how good that is."""

    prediction: CanvasPredictions
    clean: CleanText
    scores: Scores

    @property
    def score(self) -> Floats:
        """(children,) the verifier's; NaN where nothing was scored."""
        return self.scores.total

    def take(self, index: Ints) -> Looked:
        """Some of them, in this order."""
        return Looked(self.prediction.take(index), self.clean.take(index), self.scores.take(index))


@dataclass(frozen=True, slots=True)
class Survivors:
    """Who survives a step."""

    index: Ints  # (particles,) into the children
    log_weight: Floats  # (particles,) what they carry on
    resampled: bool


def distinct(keys: Iterable[bytes]) -> tuple[Ints, Ints]:
    """Index of the first of each kind of row, and for every row its kind."""
    kinds: dict[bytes, int] = {}
    first_like = [kinds.setdefault(key, place) for place, key in enumerate(keys)]
    first = np.fromiter(kinds.values(), np.int64)
    return first, first.searchsorted(first_like)
