"""A damaged run folder is refused in one line, or what it says is what was written."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from s3dlm.errors import S3dlmError
from s3dlm.evaluation import calibrate, frames, manifest, records, report
from s3dlm.evaluation.run import evaluate
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.fuzz import check_line, counts

JUNK = (
    b"",
    b"\0",
    b"{}",
    b"[]\n",
    b"null\n",
    b"\xff\xfe",
    b"x" * 5000,
    b"[" * 100_000,
    b"\n\n",
    b"9" * 5000,
)


def with_another_value(value: Any, rng: random.Random) -> Any:
    """JSON with any other value in a random place."""
    within = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    names = list(within)
    if not names or rng.random() < 0.2:
        return rng.choice((None, [], {}, "x", -1, 0, 1.5, True, 1e400, [[]], {"a": 1}, "\ud800"))
    name = rng.choice(names)
    value[name] = with_another_value(value[name], rng)
    return value


def tear(folder: Path, rng: random.Random) -> None:
    """Damage one file as a crash, a bad disk, a copy or a person would."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if not files:
        return
    path = rng.choice(files)
    data = path.read_bytes()
    at, lines = rng.randrange(len(data) + 1), data.splitlines(keepends=True)
    way = rng.randrange(12)
    if way == 0:
        path.unlink()
    elif way == 1:
        path.write_bytes(data[:at])
    elif way == 2 and data:
        flipped = bytearray(data)
        flipped[at % len(data)] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
    elif way == 3:
        path.write_bytes(data[:at] + rng.choice(JUNK) + data[at:])
    elif way == 4 and lines:
        path.write_bytes(b"".join(lines) + rng.choice(lines))
    elif way == 5 and lines:
        rng.shuffle(lines)
        path.write_bytes(b"".join(lines))
    elif way == 6 and lines:
        del lines[rng.randrange(len(lines))]
        path.write_bytes(b"".join(lines))
    elif way == 7:
        path.write_bytes(data[:at] + b"\0" * (len(data) - at))  # a block that was never written
    elif way in (8, 9):
        plan = folder / manifest.MANIFEST
        with contextlib.suppress(OSError, ValueError, RecursionError):  # torn before
            changed = with_another_value(json.loads(plan.read_bytes()), rng)
            plan.write_text(json.dumps(changed))
    elif way == 10:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(rng.choice(JUNK))


def said(folder: Path) -> dict[Any, Any]:
    """What the records of a folder say, without times."""
    return {
        record.key: (record.text, record.answer, record.correct, record.nfe)
        for record in records.read(folder)
    }


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("ignore")
@counts(60, 2000)
def test_torn_evaluation_folders(count: int, tmp_path: Path) -> None:
    task, whole = write_task(tmp_path, 3), tmp_path / "whole"
    plan = small_plan(task, ("baseline", "s3"), seeds=(0,), traces=1)
    evaluate(small_model(), plan, whole)
    written, read = said(whole), frames.read(whole).frame.correct.tolist()
    uses: dict[str, Any] = {
        "evaluate": lambda folder: evaluate(small_model(), plan, folder),
        "read": lambda folder: frames.read(folder, grading="fixed"),
        "report": lambda folder: report.write(folder, out=tmp_path / "out"),
        "calibrate": lambda folder: calibrate.read_answers(folder, "checker"),
    }
    rng, ended = random.Random(count), {"refused": 0, "served": 0}
    for number in range(count):
        folder = tmp_path / "torn"
        shutil.copytree(whole, folder)
        for _ in range(rng.choice((1, 1, 2, 3))):
            tear(folder, rng)
        # `read` and `report` are used most: nothing that they say may be wrong.
        name = rng.choice(("evaluate", "read", "read", "report", "calibrate"))
        about = (count, number, name)
        try:
            made = uses[name](folder)
        except S3dlmError as error:
            check_line(str(error), about)
            ended["refused"] += 1
        else:
            ended["served"] += 1
            there = said(folder)
            assert there.items() <= written.items(), about
            if name == "evaluate":
                assert there == written, about  # what was lost was run again
                assert (folder / manifest.MANIFEST).exists(), about
            if name == "read" and len(there) == len(written):
                assert sorted(made.frame.correct) == sorted(read), about
        shutil.rmtree(folder)
    assert min(ended.values()) > count / 20, ended
