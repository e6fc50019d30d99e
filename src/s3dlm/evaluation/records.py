"""Finished samples as append-only JSON lines that survive a kill at any moment.

A line is written once, as a whole, and synced to the disk before the next one. A kill can therefore
leave at most one incomplete last line; opening the store removes it, and that sample is run again.
All measured times are under "time", so that two runs with the same seed are equal byte for byte
without it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from s3dlm.errors import RecordError

VERSION = 1
FILE = "records.jsonl"

Key = tuple[str, str, int]  # (condition, sample, seed)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One survivor of a search, with all that voting, scoring and grading need."""

    text: str
    answer: str | None
    score: float | None
    nll: float
    confidence: float
    log_weight: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Record:
    """One finished sample under one condition and seed."""

    spec: str
    sample: str
    seed: int
    correct: float  # 1 or 0; Sudoku under d1 grading: the share of correct cells
    answer: str | None
    text: str
    survivors: tuple[Candidate, ...]
    nfe: int  # forward passes of one canvas
    nfe_logical: int  # what Algorithm 1 would need without deduplication
    steps: int
    tokens: int  # of the output, end tokens stripped
    answer_tokens: int  # of the extracted answer: what the paper's tables count
    confidence: float
    ess: float | None  # mean over the steps, divided by the children; None: no weights
    curve: tuple[float, ...] = ()  # mean confidence at every step
    scores: tuple[tuple[int, ...], ...] = ()  # children's scores at every step, in hundredths
    seconds: float = 0.0  # from first forward pass to answer, in a batch with others
    at: float | None = None  # seconds from the condition's start to this answer; None: not timed

    @property
    def key(self) -> Key:
        return (self.spec, self.sample, self.seed)

    def to_json(self) -> dict[str, Any]:
        """The line as it is written, with measured times apart from all that a seed decides."""
        row = dataclasses.asdict(self)
        time = {name: row.pop(name) for name in ("seconds", "at")}
        return {"v": VERSION, **row, "time": time}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Record:
        if row.get("v") != VERSION:
            raise RecordError(f"record version {row.get('v')!r} is unknown; this is {VERSION}")
        fields = {name: value for name, value in row.items() if name not in ("v", "time")}
        fields["survivors"] = tuple(Candidate(**one) for one in row["survivors"])
        fields["curve"] = tuple(row["curve"])
        fields["scores"] = tuple(tuple(step) for step in row["scores"])
        return cls(**fields, **row["time"])


def _dump(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read(folder: Path) -> list[Record]:
    """All records of a run in the order they were finished, without an incomplete last line."""
    path = folder / FILE
    if not path.is_file():
        raise RecordError(f"{folder} has no {FILE}; give a folder that `s3dlm eval` wrote")
    return list(_parse(path, path.read_bytes()))


def _parse(path: Path, data: bytes) -> Iterator[Record]:
    whole = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            yield Record.from_json(json.loads(line))
        except RecordError as error:
            raise RecordError(f"{path}, line {number}: {error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise RecordError(
                f"{path}, line {number}, is not a record ({error}); a kill damages only the last line, "
                "so something else changed the file: restore it or start a new folder"
            ) from error


class Store:
    """The open record file of one run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = _locked(folder / FILE)
        self.keys: set[Key] = set()
        try:
            self.records = self._read(folder / FILE)
        except RecordError:
            self._file.close()
            raise

    def _read(self, path: Path) -> list[Record]:
        data = self._file.read()
        records = list(_parse(path, data))
        for record in records:
            self._claim(record.key)
        self._repair(data)
        return records

    def _claim(self, key: Key) -> None:
        if key in self.keys:
            raise RecordError(f"the sample {key} is already recorded; no sample may count twice")
        self.keys.add(key)

    def _repair(self, data: bytes) -> None:
        """Remove what a kill left of an incomplete line, and move to the end."""
        self._file.truncate(data.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)
        os.fsync(self._file.fileno())

    def append(self, record: Record) -> None:
        """Write one record and sync it to the disk."""
        self._claim(record.key)
        self._file.write(_dump(record.to_json()))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records.append(record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _locked(path: Path) -> BinaryIO:
    """The file, locked: two writers would mix their lines."""
    file = path.open("a+b")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise RecordError(
            f"{path} is being written by another run; wait for it or give another folder"
        ) from error
    file.seek(0)
    return file


def write_atomic(path: Path, data: str) -> None:
    """Replace a file as a whole: a reader sees either the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def canonical(records: Iterable[Record]) -> list[bytes]:
    """Lines without times, sorted by key: equal for equal runs, however they were made."""
    rows = []
    for record in sorted(records, key=lambda r: r.key):
        row = record.to_json()
        del row["time"]
        rows.append(_dump(row))
    return rows
