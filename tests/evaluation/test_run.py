"""A run is its records: killed, resumed, packed or repeated, they are the same."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from s3dlm.errors import RecordError
from s3dlm.evaluation import manifest, records
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.records import canonical
from s3dlm.evaluation.run import TIMED, evaluate
from s3dlm.trace import read_trace
from tests.evaluation.small_run import BASE, LABELS, small_model, small_plan, write_task

KILLS = 50


def rows(folder: Path) -> list[bytes]:
    return canonical(records.read(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A task of 12 problems and an undisturbed run of it."""
    folder = tmp_path_factory.mktemp("whole")
    task = write_task(folder)
    evaluate(small_model(), small_plan(task), folder / "run", batch_size=8)
    return task, folder / "run"


def test_every_sample_of_every_condition_and_seed_is_there_once(whole: tuple[str, Path]) -> None:
    task, folder = whole
    plan = small_plan(task)
    found = records.read(folder)
    wanted = {
        (c.spec, s.id, seed)
        for c in plan.conditions
        for s in plan.problems[task].samples
        for seed in plan.seeds
    }
    assert {r.key for r in found} == wanted
    assert len(found) == len(wanted)
    assert {r.correct for r in found} == {0.0, 1.0}  # some are right and some are not
    assert all(r.nfe <= r.nfe_logical and len(r.curve) == BASE.steps for r in found)


def test_killed_at_random_moments_and_resumed_it_is_the_same_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "task").mkdir()
    long_task = write_task(tmp_path / "task", problems=120)
    command = [sys.executable, "-m", "tests.evaluation.small_run", long_task]
    done = subprocess.run(
        [*command, str(tmp_path / "killed"), str(KILLS)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.stdout == f"killed {KILLS}\n", done.stderr
    before = len(records.read(tmp_path / "killed"))
    evaluate(small_model(), small_plan(long_task), tmp_path / "killed")
    evaluate(small_model(), small_plan(long_task), tmp_path / "undisturbed")
    assert rows(tmp_path / "killed") == rows(tmp_path / "undisturbed")
    assert 0 < before < len(rows(tmp_path / "killed"))  # the kills fell into the run


def test_the_batch_size_does_not_change_a_record(whole: tuple[str, Path], tmp_path: Path) -> None:
    task, folder = whole
    for most in (1, 64):
        evaluate(small_model(), small_plan(task), tmp_path / str(most), batch_size=most)
        assert rows(tmp_path / str(most)) == rows(folder)


def test_a_row_cache_changes_no_record_and_only_the_first_problems_are_timed(
    whole: tuple[str, Path], tmp_path: Path
) -> None:
    task, folder = whole
    plan = dataclasses.replace(small_plan(task), row_cache=0.1)
    evaluate(small_model(), plan, tmp_path / "run", batch_size=8)
    assert sorted(rows(tmp_path / "run")) == sorted(rows(folder))
    timed = {(r.sample, r.seed) for r in records.read(tmp_path / "run") if r.at is not None}
    first = plan.problems[task].samples[:TIMED]
    assert timed == {(sample.id, plan.seeds[0]) for sample in first}
    assert all(r.at is not None for r in records.read(folder))


def test_the_same_command_again_is_byte_equal_apart_from_clocks(
    whole: tuple[str, Path], tmp_path: Path
) -> None:
    task, folder = whole
    evaluate(small_model(), small_plan(task), tmp_path, batch_size=8)
    for line, again in zip(
        (folder / records.FILE).read_bytes().splitlines(),
        (tmp_path / records.FILE).read_bytes().splitlines(),
        strict=True,
    ):
        assert _without_clock(line) == _without_clock(again)
    before = (tmp_path / records.FILE).read_bytes()
    evaluate(small_model(), small_plan(task), tmp_path)
    assert (tmp_path / records.FILE).read_bytes() == before  # nothing was left to do


def _without_clock(line: bytes) -> bytes:
    return line[: line.index(b',"time":')]


def test_a_plan_may_grow(whole: tuple[str, Path], tmp_path: Path) -> None:
    task, folder = whole
    evaluate(small_model(), small_plan(task, LABELS[:1], seeds=(0,), limit=5), tmp_path)
    assert len(records.read(tmp_path)) == 5
    evaluate(small_model(), small_plan(task), tmp_path)
    assert rows(tmp_path) == rows(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: _based(p, temperature=0.5), r"temperature was 1\.0 and is now 0\.5"),
        (lambda p: _based(p, lam=1.0), r"lam was 2\.0 and is now 1\.0"),
        (lambda p: _based(p, steps=2), "steps was 4 and is now 2"),
        (lambda p: dataclasses.replace(p, seeds=(0,)), r"seeds were \[0, 1\] and are now \[0\]"),
        (lambda p: dataclasses.replace(p, conditions=p.conditions[:2]), "/s3 is missing"),
        (lambda p: dataclasses.replace(p, split="validation"), "split was 'test'"),
    ],
)
def test_a_changed_plan_is_refused(whole, tmp_path: Path, change, said: str) -> None:  # type: ignore[no-untyped-def]
    task, folder = whole
    before = (folder / records.FILE).read_bytes()
    with pytest.raises(RecordError, match=said):
        evaluate(small_model(), change(small_plan(task)), folder)
    assert (folder / records.FILE).read_bytes() == before


def _based(plan: Plan, **changes: object) -> Plan:
    (task,) = plan.problems
    return small_plan(task, **changes)  # type: ignore[arg-type]


def test_other_problems_and_other_models_are_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, 3)
    evaluate(small_model(), small_plan(task, LABELS[:1]), tmp_path / "run")
    other = dataclasses.replace(small_model(), name="other")
    with pytest.raises(RecordError, match="model was 'fake' and is now 'other'"):
        evaluate(other, small_plan(task, LABELS[:1]), tmp_path / "run")
    path = tmp_path / "problems.jsonl"
    path.write_text(path.read_text().replace("Target: 24", "Target: 25"))
    with pytest.raises(RecordError, match=r"started with other problems: problems-0001"):
        evaluate(small_model(), small_plan(task, LABELS[:1]), tmp_path / "run")


def test_the_manifest_says_what_ran(whole: tuple[str, Path]) -> None:
    task, folder = whole
    found = manifest.read(folder)
    assert found.conditions == tuple(small_plan(task).conditions)
    assert (found.model, found.seeds, found.counts) == ("fake", (0, 1), {task: 12})
    assert {c.value("lam") for c in found.conditions} == {1.0, 2.0}
    assert {"torch", "python", "s3dlm"} <= set(found.versions)
    assert found.machine["cores"] >= 1
    assert json.loads((folder / manifest.FILE).read_text())["v"] == manifest.VERSION


def test_traces_are_written_for_the_first_problems(tmp_path: Path) -> None:
    task = write_task(tmp_path, 3)
    evaluate(small_model(), small_plan(task, ("s3",), traces=2), tmp_path / "run")
    found = sorted((tmp_path / "run" / "traces").iterdir())
    assert len(found) == 2
    trace = read_trace(found[0])
    assert len(list(trace)) == BASE.steps + 1
