"""A run as JSON lines: everything an observer saw, to be read back and replayed without a model.

Line 1 is the header, then one line per step, then the result. Floats are rounded to six digits: a
trace is for looking, not for resuming. `pieces` gives the text of every token id when it first
appears, so a reader needs no tokenizer; −1 stands for a position not yet known. `percent` is the
probability of every token of the look-ahead. The header of an infilled text has its `given` tokens,
and that of a grid its number of `columns`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from s3dlm.diffusion.infill import Template
from s3dlm.errors import RecordError
from s3dlm.inputs import read_json_lines, writing
from s3dlm.models.base import Model
from s3dlm.result import Result, as_json
from s3dlm.search.select import Survivor
from s3dlm.search.step import Step
from s3dlm.settings import Settings

FORMAT = "s3dlm.trace"
VERSION = 2
UNKNOWN = -1

_FLOATS = ("score", "confidence", "weight")
_INTS = ("parent", "survivor")
_SCALARS = (
    "index", "total", "ess", "unique_ancestors", "log_normaliser", "nfe", "resampled", "round",
    "start_nfe",
)  # fmt: skip


@dataclass(slots=True)
class TraceEncoder:
    """Turns the events of one run into plain data, one line each; also what the server streams."""

    model: Model
    known: set[int] = field(default_factory=set)  # tokens whose text was given

    def header(
        self,
        model: str,
        question: str,
        task: str | None,
        settings: Settings,
        infill: str | None = None,
    ) -> dict[str, Any]:
        tokenizer, extra = self.model.tokenizer, dict[str, Any]()
        if infill is None and (read := tokenizer.holes(question)) is not None:
            infill = read[1]
        if infill is not None:
            given = [Template.parse(infill).row(tokenizer.encode, UNKNOWN)]  # known from the start
            extra |= {"infill": infill, "given": given}
        if tokenizer.columns is not None:
            extra["columns"] = tokenizer.columns
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": model,
            "question": question,
            "task": task,
            "settings": settings.to_json(),
            **extra,
        }

    def event(self, event: Step | Result) -> dict[str, Any]:
        if isinstance(event, Step):
            return self._step(event)
        return {"event": "result", **event.to_dict()}

    def _step(self, step: Step) -> dict[str, Any]:
        mask_id, decode = self.model.denoiser.mask_id, self.model.tokenizer.decode
        tokens = np.where(step.tokens == mask_id, UNKNOWN, step.tokens)
        clean = np.where(step.clean == mask_id, UNKNOWN, step.clean)
        seen = set(np.unique(np.concatenate([tokens.ravel(), clean.ravel()])).tolist())
        new = seen - self.known - {UNKNOWN}
        self.known |= new
        return {
            "event": "step",
            **{n: as_json(getattr(step, n)) for n in (*_SCALARS, *_INTS, *_FLOATS, "parts")},
            "tokens": tokens.tolist(),
            "clean": clean.tolist(),
            "percent": np.rint(100 * np.exp(step.clean_logp)).astype(int).tolist(),
            "pieces": {str(token): decode([token]) for token in sorted(new)},
        }


def write_trace(
    path: str | Path,
    model: Model,
    events: Iterable[Step | Result],
    *,
    question: str,
    task: str | None = None,
    settings: Settings | None = None,
    infill: str | None = None,
) -> Iterator[Step | Result]:
    """Pass events through, writing each as it comes; what was seen is kept if the run breaks off."""
    encoder = TraceEncoder(model)
    with contextlib.ExitStack() as stack:
        with writing(path):  # unbuffered: closing it has nothing left to write
            file = stack.enter_context(Path(path).open("wb", buffering=0))
        first = encoder.header(model.name, question, task, settings or Settings(), infill)
        _line(path, file, first)
        for event in events:
            _line(path, file, encoder.event(event))
            yield event


def _line(path: str | Path, file: FileIO, data: dict[str, Any]) -> None:
    left = memoryview(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    with writing(path):
        while left:
            left = left[file.write(left) :]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run; iterate over it to see the steps and the result again."""

    header: dict[str, Any]
    events: list[Step | Result]
    pieces: dict[int, str]

    def __iter__(self) -> Iterator[Step | Result]:
        return iter(self.events)


def read_trace(path: str | Path) -> Trace:
    """Read a trace back; an incomplete last line is dropped, any other damage is named."""
    remedy = (
        "`s3dlm generate … --trace FILE` writes a trace, and `s3dlm eval … --traces N` writes some "
        "to OUT/traces"
    )
    lines = read_json_lines(path, drop_partial=True, remedy=remedy)
    _, header = next(lines, (0, {}))
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise RecordError(
            f"{path} is not a trace of version {VERSION}: its first line says "
            f"{json.dumps(header)[:80]}; {remedy}"
        )
    pieces: dict[int, str] = {}
    events: list[Step | Result] = []
    for number, line in lines:
        try:
            pieces |= {int(token): str(text) for token, text in line.get("pieces", {}).items()}
            events.append(_decode_step(line) if line["event"] == "step" else _decode_result(line))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RecordError(
                f"{path}, line {number} is not a step or result of a trace "
                f"({type(error).__name__}: {str(error)[:80]})"
            ) from error
    return Trace(header, events, pieces)


def _decode_step(line: dict[str, Any]) -> Step:
    data: dict[str, Any] = {name: line[name] for name in (*_SCALARS, "parts")}
    data |= {name: np.asarray(line[name], np.int64) for name in (*_INTS, "tokens", "clean")}
    data |= {name: np.asarray(line[name], np.float64) for name in _FLOATS}  # null is NaN
    children = data["tokens"].shape[:1]
    if data["tokens"].ndim != 2 or data["clean"].shape != data["tokens"].shape:
        raise ValueError(f"tokens have the shape {data['tokens'].shape}")
    for name in ("parent", *_FLOATS):
        if data[name].shape != children:
            raise ValueError(f"{name} has the shape {data[name].shape}, tokens {children}")
    data["logp"] = np.zeros(data["tokens"].shape)  # not recorded: nobody looks at it
    with np.errstate(divide="ignore"):
        data["clean_logp"] = np.log(np.asarray(line["percent"]) / 100)
    if data["clean_logp"].shape != data["tokens"].shape:
        raise ValueError(f"percent has the shape {data['clean_logp'].shape}")
    return Step(**data)


def _decode_result(line: dict[str, Any]) -> Result:
    fields = {field.name for field in dataclasses.fields(Result)}
    data = {name: value for name, value in line.items() if name in fields}
    data["settings"] = Settings.from_json(data["settings"])
    data["holes"] = tuple(data.get("holes", ()))
    data["survivors"] = tuple(Survivor(**survivor) for survivor in data["survivors"])
    return Result(**data)
