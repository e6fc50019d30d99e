"""A run is its records: killed, resumed, batched or repeated, they are the same."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from s3dlm.errors import RecordError, S3dlmError
from s3dlm.evaluation import frames, manifest, records, run
from s3dlm.evaluation.local import gold_mistake
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Failure
from s3dlm.evaluation.run import Bars, evaluate
from s3dlm.models.base import Denoiser, Model, Wrapper
from s3dlm.tasks import Loaded, Sample
from s3dlm.trace import read_trace
from tests.evaluation.small_run import (
    BASE,
    LABELS,
    ROOT,
    canonical,
    copy_run,
    small_model,
    small_plan,
    write_task,
)
from tests.evaluation.test_records import record
from tests.fakes import ByteTokenizer


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
    plan, found = small_plan(task), records.read(folder)
    wanted = [(c.spec, s.id, seed) for c in plan.conditions for s in plan.problems[task].samples for seed in plan.seeds]  # fmt: skip
    assert sorted(r.key for r in found) == sorted(wanted)
    assert {r.correct for r in found} == {0.0, 1.0}  # some are right and some are not
    assert all(r.nfe <= r.nfe_logical and len(r.curve) == BASE.decoding.steps for r in found)


def test_confidence_is_of_the_same_part_of_the_text_for_all_methods(tmp_path: Path) -> None:
    """With one particle and one child both methods write the same text; only one looks ahead beyond
    its open block."""
    one = {"particles": 1, "branching": 1, "block_length": 12}
    plan = small_plan(write_task(tmp_path, 2), ("baseline", "s3"), seeds=(0,), **one)
    evaluate(small_model(), plan, tmp_path / "run")
    found = records.read(tmp_path / "run")
    assert len({(r.sample, r.curve, r.text) for r in found}) == len({r.sample for r in found}) == 2


@pytest.mark.parametrize(
    ("kills", "problems"), [(8, 12), pytest.param(50, 120, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_and_resumed_it_is_the_same_run(
    whole: tuple[str, Path], tmp_path: Path, kills: int, problems: int
) -> None:
    task, undisturbed = whole
    if problems > 12:
        task, undisturbed = write_task(tmp_path, problems), tmp_path / "undisturbed"
        evaluate(small_model(), small_plan(task), undisturbed)
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.evaluation.small_run", task, str(killed), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == f"killed {kills}\n", done.stderr
    before = len(records.read(killed))
    evaluate(small_model(), small_plan(task), killed)
    assert rows(killed) == rows(undisturbed)
    assert 0 < before < len(rows(killed))  # the kills fell into the run


def test_the_same_command_is_byte_equal_apart_from_clocks_and_a_plan_may_grow(
    whole: tuple[str, Path], tmp_path: Path
) -> None:
    """Also in other batches."""
    task, folder = whole
    for name, begun, size in (
        ("again", None, 8),
        ("grown", small_plan(task, LABELS[:1], (0,), 5), 1),
    ):
        if begun is not None:
            evaluate(small_model(), begun, tmp_path / name)
            assert len(records.read(tmp_path / name)) == 5
        evaluate(small_model(), small_plan(task), tmp_path / name, batch_size=size)
        assert rows(tmp_path / name) == rows(folder)
    one, again = ((place / records.RECORDS).read_bytes() for place in (folder, tmp_path / "again"))
    assert _without_clocks(one) == _without_clocks(again)
    evaluate(small_model(), small_plan(task), tmp_path / "again")  # nothing is left to do
    assert (tmp_path / "again" / records.RECORDS).read_bytes() == again


def _without_clocks(lines: bytes) -> list[bytes]:
    return [line.partition(b',"at":')[0] for line in lines.splitlines()]


@pytest.mark.parametrize(
    ("given", "changes", "said"),
    [
        ({"temperature": 0.5}, {}, r"temperature was 1\.0 and is now 0\.5"),
        ({"lam": 1.0}, {}, r"lam was 2\.0 and is now 1\.0"),
        ({"seeds": (0,)}, {}, r"seeds were \[0, 1\] and are now \[0\]"),
        ({"limit": 5}, {}, "had 12 problems and now has 5"),
        ({"labels": LABELS[:2]}, {}, "/s3 is missing"),
        ({}, {"split": "validation"}, "split was 'test'"),
    ],
)
def test_a_changed_plan_is_refused(
    whole: tuple[str, Path], given: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    task, folder = whole
    before = (folder / records.RECORDS).read_bytes()
    with pytest.raises(RecordError, match=said):
        evaluate(small_model(), dataclasses.replace(small_plan(task, **given), **changes), folder)
    assert (folder / records.RECORDS).read_bytes() == before


def test_other_problems_and_other_models_are_refused(tmp_path: Path) -> None:
    task = write_task(tmp_path, 3)
    evaluate(small_model(), small_plan(task, LABELS[:1]), tmp_path / "run")
    other = dataclasses.replace(small_model(), name="other")
    with pytest.raises(RecordError, match="model was 'fake' and is now 'other'"):
        evaluate(other, small_plan(task, LABELS[:1]), tmp_path / "run")
    path = tmp_path / "problems.jsonl"
    path.write_text(path.read_text().replace("Target: 36", "Target: 25"))
    with pytest.raises(RecordError, match=r"started with other problems: problems-0001"):
        evaluate(small_model(), small_plan(task, LABELS[:1]), tmp_path / "run")


def test_the_manifest_says_what_ran(whole: tuple[str, Path]) -> None:
    task, folder = whole
    found = manifest.read(folder)
    assert found.conditions == tuple(small_plan(task).conditions)
    assert (found.model, found.seeds, found.counts) == ("fake", (0, 1), {task: 12})
    assert {c.value("lam") for c in found.conditions} == {None, 2.0}
    assert {"torch", "python", "s3dlm"} <= set(found.versions)
    assert found.machine["cores"] >= 1
    assert json.loads((folder / manifest.MANIFEST).read_text())["v"] == manifest.MANIFEST_VERSION


class Broken(Wrapper):
    """The fake denoiser, but a canvas with one certain token breaks the forward pass."""

    def __init__(self, denoiser: Denoiser, token: int) -> None:
        super().__init__(denoiser)
        self.token = token

    def encode(self, tokens: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
        if (tokens == self.token).any():
            raise RuntimeError("the forward pass broke")
        return self.inner.encode(tokens, keys)


BAD: dict[int, dict[str, object]] = {
    1: {"question": "   "},
    3: {"gold": "\u00b2"},
    4: {"question": "§ Target: 24 Numbers: 6, 4, 12"},  # § breaks the forward pass
}


def _fragile(broken: bool = True) -> Model:
    model = small_model()
    token = model.tokenizer.encode("§")[0] if broken else -1
    return dataclasses.replace(model, denoiser=Broken(model.denoiser, token))


def test_a_bad_sample_fails_alone_and_the_others_are_as_without_it(tmp_path: Path) -> None:
    task = write_task(tmp_path, 6)
    evaluate(small_model(), small_plan(task, ("s3",)), tmp_path / "good", batch_size=8)
    write_task(tmp_path, 6, BAD)
    evaluate(_fragile(), small_plan(task, ("s3",)), tmp_path / "run", batch_size=8)
    found = records.read_all(tmp_path / "run")
    failed = {(f.sample, f.seed): (f.error, f.reason) for f in found.failures.values()}
    assert set(failed) == {(f"problems-000{i}", seed) for i in BAD for seed in (0, 1)}
    assert failed["problems-0001", 0][0] == "PromptError"
    assert failed["problems-0003", 0] == (
        "RecordError",
        "the gold answer '²' of problems-0003 is not [[numbers], target]; correct the data",
    )
    assert failed["problems-0004", 1] == ("RuntimeError", "the forward pass broke")
    good = [r for r in records.read(tmp_path / "good") if int(r.sample[-1]) not in BAD]
    assert canonical(found.records.values()) == canonical(good)


def test_failed_samples_are_reported_and_run_again_only_on_request(tmp_path: Path) -> None:
    task = write_task(tmp_path, 4, {1: BAD[4]})
    plan = small_plan(task, ("s3",), seeds=(0,))
    evaluate(_fragile(), plan, tmp_path / "run")
    before = (tmp_path / "run" / records.RECORDS).read_bytes()
    evaluate(_fragile(), plan, tmp_path / "run")
    assert (tmp_path / "run" / records.RECORDS).read_bytes() == before
    run = frames.read(tmp_path / "run")
    (failure,) = run.failures
    assert (failure.sample, failure.reason) == ("problems-0001", "the forward pass broke")
    (cell,) = run.cells.values()
    assert (cell.problems, cell.failed) == (4, 1)
    evaluate(_fragile(broken=False), plan, tmp_path / "run", retry_failed=True)
    assert not records.read_all(tmp_path / "run").failures
    assert len(records.read(tmp_path / "run")) == 4


def test_a_trace_that_cannot_be_written_ends_the_run_and_fails_no_sample(tmp_path: Path) -> None:
    task, folder = write_task(tmp_path, 3), tmp_path / "run"
    plan = small_plan(task, ("s3",), seeds=(0,), traces=1)
    folder.mkdir()
    (folder / "traces").write_text("in the way")
    with pytest.raises(RecordError, match=r"cannot be written: .*repeat the command"):
        evaluate(small_model(), plan, folder)
    assert not records.read_all(folder).failures
    (folder / "traces").unlink()
    evaluate(small_model(), plan, folder)
    assert len(records.read(folder)) == 3
    assert len(list((folder / "traces").iterdir())) == 1


def test_failures_end_a_run_if_nothing_succeeds(tmp_path: Path) -> None:
    task = write_task(tmp_path, 24, {i: {"gold": "0012"} for i in range(12)})
    plan = small_plan(task, ("baseline",), seeds=(0,))
    with pytest.raises(
        S3dlmError, match=r"the first 10 samples all failed.*problems-0009: the gold answer '0012'"
    ):
        evaluate(small_model(), plan, tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("gsm8k", ["1,234", "-2", 5.0, "so #### 7"], ["²", "", "five", float("inf")]),
        ("arc", ["A", "h", "3"], ["²", "0012", "9", "", "AB"]),
        ("countdown", [[[1, 2], 3], "3|1,2"], ["²", "0012", [["²"], 3], [1], {}]),
        ("sudoku", ["1234123412341234"], ["²", "12²4", "", "12 4"]),
        ("math500", ["²", "\\frac12"], []),
    ],
)
def test_gold_answers_that_nothing_can_match_are_named(
    kind: str, good: list[object], bad: list[object]
) -> None:
    assert [gold_mistake(kind, Sample("p-1", "?", gold)) for gold in good] == [None] * len(good)
    for gold in bad:
        said = gold_mistake(kind, Sample("p-1", "?", gold))
        assert said is not None, gold
        assert "of p-1 is not" in said


def test_a_lost_or_foreign_manifest_is_refused(whole: tuple[str, Path], tmp_path: Path) -> None:
    task, folder = whole
    path = copy_run(folder, tmp_path) / manifest.MANIFEST
    path.unlink()
    with pytest.raises(RecordError, match=r"has records but no manifest\.json"):
        evaluate(small_model(), small_plan(task), tmp_path)
    other = dataclasses.replace(small_model(), name="other")
    evaluate(other, small_plan(task, limit=1), tmp_path / "other")
    path.write_bytes((tmp_path / "other" / manifest.MANIFEST).read_bytes())
    for use in (lambda: evaluate(other, small_plan(task), tmp_path), lambda: frames.read(tmp_path)):
        with pytest.raises(RecordError, match="belong to different runs"):
            use()
    assert (tmp_path / records.RECORDS).read_bytes() == (folder / records.RECORDS).read_bytes()


def test_any_unicode_may_be_in_a_question(tmp_path: Path) -> None:
    """Separators do not end a line; what is not valid is written escaped. The first problems have traces."""
    ending = " Target: 24 Numbers: 6, 4, 12"
    questions = [f"One\u2028two\u2029three\u0085four\x0bfive{ending}", f"\ud800{ending}", ending]
    task = write_task(tmp_path, 3, {i: {"question": asked} for i, asked in enumerate(questions)})
    for _ in range(2):  # the second time it is resumed
        evaluate(small_model(), small_plan(task, ("s3",), traces=1), tmp_path / "run")
    stored = manifest.read_samples(tmp_path / "run")[task]
    assert [sample.question for sample in stored] == questions
    (path,) = (tmp_path / "run" / "traces").iterdir()
    trace = read_trace(path)
    assert trace.header["question"] == questions[0]
    assert len(list(trace)) == BASE.decoding.steps + 1
    contents = records.read_all(tmp_path / "run")
    assert len(contents.records) + len(contents.failures) == 6


def test_without_its_file_the_models_tokenizer_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    name, count = manifest.token_counter(ByteTokenizer())
    assert (name, count("four")) == ("the model's tokenizer", 4)


def test_progress_without_a_terminal_is_one_line_per_condition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LINE_EVERY", math.inf)  # however slow this machine is
    condition = Condition("countdown", "s3", BASE)
    problems = {"countdown": Loaded((Sample("a", "?", 1),) * 3, "", 3)}
    with Bars(Plan([condition], problems)) as bars:
        bars.begin(condition, 3, [record("a")])
        bars.record(condition, record("b", correct=0.0))
        bars.record(condition, Failure(condition.spec, "c", 0, "ValueError", "a test"))
    failed, said = capsys.readouterr().err.splitlines()
    assert failed == "c failed: ValueError: a test"
    assert said == "[1/1] Countdown s3 (N=2 b=2 block=24 T=1 λ=2) 3/3 33.3 % 1 failed"
