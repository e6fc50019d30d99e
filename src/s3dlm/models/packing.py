"""What a search asks the model for, what it gets back, and which rows run together in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Batch: TypeAlias = list[tuple[int, int]]  # rows that run together, each by request and row

# On CPU a row's bits were seen to change with its padding only when its length was no multiple of 16
# (probably where vectors end), and with the batch only when matrices had fewer than 16 rows, or with
# older instruction sets a number of rows that is no multiple of 4. So rows and matrices are padded to a
# multiple, and lengths are compared in steps of it.
LENGTH_MULTIPLE = 16
PADDING_LIMIT = 0.75  # rows shorter than this share of the batch's width go into another batch


@dataclass(frozen=True, slots=True)
class Sampling:
    """How logits are changed before tokens are drawn; by default, not at all."""

    top_k: int | None = None  # draw among the k best tokens only
    top_p: float | None = None  # draw among the best tokens that hold this much probability
    tempered: bool = False  # report the probabilities of what is drawn from, as Dream does
    guidance: float = 0.0  # classifier-free guidance; above 0 a row costs two forward passes
    suppressed: tuple[int, ...] = ()  # ids that are never predicted
    deferred: tuple[int, ...] = ()  # ids whose probability is reported, so that they can wait

    @property
    def filtered(self) -> bool:
        """Whether tokens are drawn from something else than the tempered logits."""
        return self.tempered or self.top_k is not None or self.top_p is not None


PLAIN = Sampling()


@dataclass(frozen=True, slots=True)
class Rows:
    """Canvases of one prompt that need a prediction, and what is needed of it."""

    prompt: Ints  # (prompt,)
    canvas: Ints  # (rows, length)
    masked: NDArray[np.bool_]  # (rows, length) positions not yet known
    start: Ints  # (rows,) the open block of each row, sampled next
    stop: Ints  # (rows,)
    uniforms: Floats  # (rows, block, draws) in [0, 1): one for each sample of each position
    temperature: float | Floats  # one for all rows, or each row its own
    look_ahead: bool  # whether positions outside the open block are predicted too
    statistics: bool  # whether margin and entropy are needed
    label: str  # names the prompt and step in errors
    sampling: Sampling = PLAIN
    asked: Ints | None = None  # (rows, block, any) tokens whose log-probabilities are wanted
    allowed: NDArray[np.int32] | None = None
    """(rows, words) the tokens that the first masked position of each row may have, a bit each"""
    kept: Sequence[Any] | None = None
    """Of each row what an earlier prediction left of an equal one, or None; given, this one leaves it, too."""
    vectors: Sequence[Any] | None = None  # of each row what its last prediction expected, or None

    def is_kept(self, row: int) -> bool:
        """Whether a row need not be run again."""
        return self.kept is not None and self.kept[row] is not None

    def take(self, rows: slice) -> Rows:
        """Some of the rows."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        parts: dict[str, Any] = {
            name: value[rows]
            for name, value in values.items()
            if isinstance(value, np.ndarray | list | tuple) and name != "prompt"
        }
        return replace(self, **parts)

    @property
    def length(self) -> int:
        """Tokens of one row: prompt and canvas."""
        return int(self.prompt.size + self.canvas.shape[1])


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model predicts for some canvases; only masked positions that were asked for count."""

    top: Ints  # (rows, length) most probable token
    top_logp: Floats  # (rows, length) its log-probability
    draws: Ints  # (rows, block, draws) samples of softmax(logits / temperature)
    draws_logp: Floats  # (rows, block, draws) their log-probability, untempered unless asked for
    margin: Floats | None = None  # (rows, block)
    entropy: Floats | None = None  # (rows, block) NaN where nothing was asked
    deferred: Floats | None = None  # (rows, block) probability of the ids that wait, together
    asked_logp: Floats | None = None  # (rows, block, any) of the tokens that were asked for
    vectors: Floats | None = None  # (rows, block, any) of a model that is conditioned by them
    kept: Sequence[Any] = ()  # (rows) for `Rows.kept`, if those were given

    @classmethod
    def empty(cls, request: Rows, expected: int = 0) -> Prediction:
        """For the rows of a request; a conditioned model expects vectors of some width."""
        shape, block = request.canvas.shape, request.uniforms.shape
        wanted = request.statistics
        return cls(
            top=request.canvas.copy(),
            top_logp=np.zeros(shape),
            draws=np.zeros(block, dtype=np.int64),
            draws_logp=np.zeros(block),
            margin=np.zeros(block[:2]) if wanted else None,
            entropy=np.full(block[:2], np.nan) if wanted else None,
            deferred=np.zeros(block[:2]) if request.sampling.deferred else None,
            asked_logp=None if request.asked is None else np.zeros(request.asked.shape),
            vectors=np.zeros((*block[:2], expected), np.float32) if expected else None,
            kept=() if request.kept is None else list(request.kept),
        )

    @classmethod
    def join(cls, parts: Sequence[Prediction]) -> Prediction:
        """The prediction for the rows of all parts."""

        def joined(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            if name == "kept":
                return [each for value in values for each in value]
            return None if values[0] is None else np.concatenate(values)

        return parts[0] if len(parts) == 1 else cls(*(joined(f.name) for f in fields(cls)))


@dataclass(frozen=True, slots=True)
class Place:
    """Wanted positions of one request as flat indices: where their features are, where results go."""

    request: Rows
    result: Prediction
    canvas: Ints  # (places,) into the request's rows × length
    block: Ints  # (places,) into its rows × block; meaningless where nothing is sampled
    feature: Ints  # (places,) into the batch's rows × width
    temperature: float = 0.0

    def part(self, first: int, last: int) -> Place:
        at = slice(first, last)
        parts = (self.canvas[at], self.block[at], self.feature[at])
        return Place(self.request, self.result, *parts, self.temperature)

    def of_request(self, name: str) -> NDArray[Any]:
        """Of a field of the request, (rows, block, any), what belongs to these positions."""
        values: NDArray[Any] = getattr(self.request, name)
        return values.reshape(-1, values.shape[2])[self.block]

    def limited(self) -> tuple[Ints, NDArray[np.int32]]:
        """Which of the places have a limited choice of tokens, and which tokens."""
        assert self.request.allowed is not None
        row, position = np.divmod(self.canvas, self.request.canvas.shape[1])
        (first,) = np.nonzero(position == self.request.masked.argmax(axis=1)[row])
        return first, self.request.allowed[row[first]]

    def fill(self, read: Mapping[str, NDArray[Any]]) -> None:
        """Write what was read here into the fields of the result."""
        for name, values in read.items():
            at = self.canvas if name in ("top", "top_logp") else self.block
            getattr(self.result, name).reshape(-1, *values.shape[1:])[at] = values


def batches(
    requests: Sequence[Rows], lengths: Mapping[int, int], max_tokens: int
) -> Iterator[Batch]:
    """Rows of the requests that have a length here, of similar padded length, together at most
    `max_tokens`, the longest rows first."""
    batch: Batch = []
    width = room = 0
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        length = -(-lengths[index] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        for row in range(len(requests[index].canvas)):
            if requests[index].is_kept(row):
                continue
            if batch and (len(batch) >= room or length < PADDING_LIMIT * width):
                yield batch
                batch = []
            if not batch:
                width, room = length, max(1, max_tokens // length)
            batch.append((index, row))
    if batch:
        yield batch


def groups(
    requests: Sequence[Rows],
    results: Sequence[Prediction],
    batch: Batch,
    width: int,
    known: Ints | None,
    most: int,
) -> Iterator[tuple[bool, list[Place]]]:
    """Wanted places that can be read together, at most so many: (sampled, places). Masked positions of
    the open block are sampled, those outside it are not. The features of a row begin behind its first
    `known` positions (rows of the batch,)."""
    found: dict[tuple[object, ...], list[Place]] = {}
    table = np.array(batch)
    begins = np.arange(len(batch)) * width - (0 if known is None else known)
    for index in dict.fromkeys(table[:, 0].tolist()):
        request, sampling = requests[index], requests[index].sampling
        here = table[:, 0] == index
        row, begin = table[here, 1], begins[here] + request.prompt.size
        position = np.arange(request.canvas.shape[1])
        inside = (position >= request.start[:, None]) & (position < request.stop[:, None])
        warmth = np.broadcast_to(np.asarray(request.temperature), len(request.canvas))
        kinds = [(True, each) for each in np.unique(warmth[row]).tolist()]
        for sampled, temperature in [*kinds, (False, 0.0)] if request.look_ahead else kinds:
            asked_for = request.masked & (inside == sampled)
            if sampled and len(kinds) > 1:
                asked_for = asked_for & (warmth == temperature)[:, None]
            wanted, position = asked_for[row].nonzero()
            if not wanted.size:
                continue
            canvas = row[wanted] * request.canvas.shape[1] + position
            block = row[wanted] * request.uniforms.shape[1] + position - request.start[row[wanted]]
            kind: tuple[object, ...] = (False, sampling.suppressed, sampling.guidance)
            if sampled:
                draws = request.uniforms.shape[2]
                asked = 0 if request.asked is None else request.asked.shape[2]
                limited = request.allowed is not None
                kind = (True, sampling, temperature, draws, request.statistics, asked, limited)
            feature = begin[wanted] + position
            place = Place(request, results[index], canvas, block, feature, temperature)
            found.setdefault(kind, []).append(place)
    for kind, places in found.items():
        together, room = list[Place](), most
        for place in places:
            first, size = 0, place.feature.size
            while first < size:
                together.append(place.part(first, first + room))
                first, room = first + together[-1].feature.size, room - together[-1].feature.size
                if not room:
                    yield bool(kind[0]), together
                    together, room = [], most
        if together:
            yield bool(kind[0]), together
