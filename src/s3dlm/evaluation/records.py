"""Finished samples as append-only JSON lines that survive a kill at any moment.

A line is written once, as a whole, and synced to the disk before the next one. A kill can therefore
leave at most one incomplete last line; opening the store removes it, and that sample is run again.
Every line ends with a checksum of its text, so a damaged line is found, and names the run it belongs
to. A sample that could not be run is a line as well, with the reason. The one measured time, "at", comes
last, so that two runs with the same seed are equal byte for byte before it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s3dlm.errors import RecordError
from s3dlm.inputs import read_json_lines, writing

RECORDS_VERSION = 3
RECORDS = "records.jsonl"

RecordKey = tuple[str, str, int]  # (condition, sample, seed)


@dataclass(frozen=True, slots=True)
class RecordedSurvivor:
    """One survivor of a search, with all that voting, scoring and grading need."""

    text: str
    answer: str | None
    score: float | None
    nll: float
    confidence: float
    log_weight: float
    tokens: int


@dataclass(frozen=True, slots=True)
class _SampleLine:
    """What a line is about."""

    spec: str  # of the condition
    sample: str
    seed: int

    @property
    def key(self) -> RecordKey:
        return (self.spec, self.sample, self.seed)


@dataclass(frozen=True, slots=True)
class Record(_SampleLine):
    """One finished sample under one condition and seed."""

    correct: float  # 1 or 0; Sudoku under d1 grading: the share of correct cells
    answer: str | None
    text: str
    survivors: tuple[RecordedSurvivor, ...]
    nfe: int  # forward passes of one canvas
    nfe_logical: int  # what Algorithm 1 would need without deduplication
    tokens: int  # of the output, end tokens stripped
    answer_tokens: int  # of the extracted answer: what the paper's tables count
    ess: float | None  # mean over the steps, divided by the children; None: no weights
    curve: tuple[float, ...] = ()  # mean confidence at every step
    scores: tuple[tuple[int, ...], ...] = ()  # children's scores at every step, in hundredths
    chosen_score: float | None = None  # the verifier's, of the chosen text
    chosen_confidence: float | None = None
    p_correct: float | None = None  # by the model's calibration, if it has one
    at: float = 0.0  # seconds from the condition's start to this answer

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = six_digits(dataclasses.asdict(self))
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Record:
        survivors = tuple(RecordedSurvivor(**survivor) for survivor in row["survivors"])
        scores = tuple(tuple(step) for step in row["scores"])
        fields = {"survivors": survivors, "curve": tuple(row["curve"]), "scores": scores}
        return cls(**{**row, **fields})


@dataclass(frozen=True, slots=True)
class Failure(_SampleLine):
    """A sample that could not be run or graded."""

    error: str  # the name of the exception
    reason: str

    @property
    def correct(self) -> float:
        """What failed counts as wrong."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(slots=True)
class Contents:
    """What a record file holds."""

    records: dict[RecordKey, Record] = field(default_factory=dict)
    failures: dict[RecordKey, Failure] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)  # the runs that wrote it: one, if all is well

    def of(self, spec: str) -> list[Record | Failure]:
        """All that came of a condition."""
        rows: list[Record | Failure] = [*self.records.values(), *self.failures.values()]
        return [row for row in rows if row.spec == spec]

    def add(self, row: Record | Failure) -> None:
        """A failure may be followed by a record of the same sample, a record by nothing."""
        if row.key in self.records:
            raise RecordError(f"the sample {row.key} is already recorded and may not count twice")
        if isinstance(row, Record):
            self.records[row.key] = row
            self.failures.pop(row.key, None)
        else:
            self.failures[row.key] = row


def six_digits(value: Any) -> Any:
    """Plain data with six significant digits, more than a table shows."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: six_digits(item) for name, item in value.items()}
    return [six_digits(item) for item in value] if isinstance(value, list | tuple) else value


def to_line(row: Mapping[str, object]) -> bytes:
    """One line of JSON; text that is not valid Unicode is escaped."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace") + b"\n"


def _checksum(body: bytes) -> bytes:
    return b',"sum":"%08x"}' % zlib.crc32(body)


def seal(row: Mapping[str, object]) -> bytes:
    """One line of JSON that ends with a checksum."""
    body = to_line(row)[:-1]
    return body[:-1] + _checksum(body) + b"\n"


def unseal(line: bytes) -> bytes:
    """A line without its checksum; a wrong one raises ValueError."""
    length = len(_checksum(b""))
    body = line[:-length] + b"}"
    if line[-length:] != _checksum(body):
        raise ValueError("its checksum is wrong, so it is damaged")
    return body


def _parse(path: Path) -> Contents:
    contents = Contents()
    remedy = (
        "a kill damages only the last line, so something else changed the file: restore it or run "
        "the evaluation again in a new folder"
    )
    for number, row in read_json_lines(path, unseal=unseal, drop_partial=True, remedy=remedy):
        try:
            if row.pop("v") != RECORDS_VERSION:
                raise ValueError(f"its version is not supported (this is {RECORDS_VERSION})")
            contents.runs.add(row.pop("run"))
            contents.add(Failure(**row) if "error" in row else Record.from_json(row))
        except (ValueError, TypeError, KeyError, RecordError) as error:
            text = f"{path}, line {number}, cannot be read: {error}; {remedy}"
            raise RecordError(text) from error
    return contents


def file_of(folder: Path, name: str) -> Path:
    """A file of a run, which must be there."""
    if not (folder / name).is_file():
        raise RecordError(f"{folder} has no {name}; give a folder that `s3dlm eval` wrote")
    return folder / name


def read_all(folder: Path) -> Contents:
    """All records and failures of a run, without an incomplete last line."""
    return _parse(file_of(folder, RECORDS))


def read(folder: Path) -> list[Record]:
    """The records of a run, in the order they were finished."""
    return list(read_all(folder).records.values())


class Store(contextlib.AbstractContextManager["Store"]):
    """The open record file of one run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two writers would mix lines
            self.contents = _parse(self.path)
            self._end = self.path.read_bytes().rfind(b"\n") + 1
            with writing(self.path):
                os.ftruncate(self._file, self._end)  # what a kill left of an incomplete line
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise RecordError(
                    f"{self.path} is being written by another run; wait for it or give another "
                    "folder"
                ) from error
            raise

    def append(self, row: Record | Failure, run: str) -> None:
        """Write one line and sync it to the disk; on failure the file stays as it was."""
        self.contents.add(row)
        line = memoryview(seal({"v": RECORDS_VERSION, "run": run, **row.to_json()}))
        try:
            with writing(self.path):
                end = self._end
                while line:
                    written = os.pwrite(self._file, line, end)
                    end, line = end + written, line[written:]
                os.fsync(self._file)
        except RecordError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        self._end = end

    def close(self) -> None:
        os.close(self._file)

    def __exit__(self, *_: object) -> None:
        self.close()


def write_atomic(path: Path, data: str) -> None:
    """Replace a file as a whole: a reader sees either the old text or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
