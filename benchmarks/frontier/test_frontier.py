"""The frontier: curves, comparisons at equal NFE, tuning on validation, and the command as typed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import tune
from benchmarks.frontier import __main__ as command
from benchmarks.frontier import curves, page, stages
from benchmarks.frontier import entries as rows
from benchmarks.frontier.entries import ENTRIES, Entry
from s3dlm.errors import RecordError, SettingsError
from s3dlm.evaluation import records
from s3dlm.evaluation.plan import recommendations
from s3dlm.models import registry
from tests.evaluation.small_run import defaults, small_model

TASK = ["countdown"]


def point(
    grades: Sequence[float], nfe: int, task: str = "countdown", seeds: int = 1
) -> pd.DataFrame:
    """One point of a curve: a problem per grade."""
    rows = [
        (0, task, f"p{i}", s, grade, nfe) for i, grade in enumerate(grades) for s in range(seeds)
    ]
    return pd.DataFrame(rows, columns=("point", "task", "sample", "seed", "correct", "nfe"))


def curve(*points: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows.assign(point=number) for number, rows in enumerate(points)])


RISING = curve(point([0.0] * 12, 4), point([1.0] * 12, 16))


@pytest.mark.parametrize("other", [RISING, curve(*reversed(curves.points(RISING)))])
def test_a_gap_is_taken_at_equal_nfe(other: pd.DataFrame) -> None:
    """At NFE 8 the control is half-way between 0 and 1 on every problem: ours leads by a half."""
    found = curves.gap(point([1.0] * 12, 8), other, TASK)
    assert found is not None
    assert (found.difference.value, found.difference.low) == pytest.approx((0.5, 0.5))
    assert found.nfe == 8
    assert found.p < 0.01
    assert curves.gap(point([1.0] * 12, 2), other, TASK) is None
    assert curves.gap(point([1.0] * 12, 32), other, TASK) is None


def test_what_is_noise_has_a_large_p() -> None:
    """Other problems are right, as many; or ours and the control's first point are right on the same
    problems and spend about the same, and the control's next point is right on ten more: where ours
    lies between the two is chance, too."""
    other = curve(point([1.0, 0.0] * 20, 4), point([1.0, 0.0] * 20, 16))
    found = curves.gap(point([0.0, 1.0] * 20, 8), other, TASK)
    assert found is not None
    assert abs(found.difference.value) < 1e-9
    assert found.p > 0.5
    rng, right = np.random.default_rng(3), [1.0] * 100 + [0.0] * 100
    first, ours = (point(right, 8).assign(nfe=rng.integers(1, 16, 200)) for _ in range(2))
    first, ours = sorted((first, ours), key=lambda each: float(each.nfe.mean()))
    found = curves.gap(ours, curve(first, point([1.0] * 110 + [0.0] * 90, 32)), TASK)
    assert found is not None
    assert (found.difference.value < 0, found.p > 0.05) == (True, True)


def test_a_gap_uses_only_the_problems_and_seeds_that_both_have() -> None:
    """Our point has two more problems, all wrong and dear; they count neither in grade nor in NFE."""
    dear = point([0.0], 999)
    ours = pd.concat([point([1.0, 1.0], 8), dear.assign(seed=1), dear.assign(sample="p8")])
    found = curves.gap(ours, curve(point([0.0, 0.0], 4), point([0.0, 0.0], 16)), TASK)
    assert found is not None
    assert (found.difference.value, found.nfe) == (1.0, 8)
    assert math.isnan(found.p)  # two problems prove nothing


def test_seeds_of_a_problem_are_one_observation() -> None:
    """Fifty seeds of two problems are two problems: the interval stays as wide."""
    few, many = (curves.accuracy(point([1.0, 0.0], 4, seeds=n), TASK) for n in (1, 50))
    assert (many.low, many.high) == (few.low, few.high) == (0.0, 1.0)


def test_the_mean_of_tasks_counts_each_task_once() -> None:
    both = pd.concat([point([1.0] * 9, 10), point([0.0], 30, "sudoku")])
    assert curves.accuracy(both, ["countdown", "sudoku"]).value == pytest.approx(0.5)
    assert curves.nfe(both, ["countdown", "sudoku"]) == 20
    assert math.isnan(curves.nfe(point([], 4), TASK))


def test_curves_are_read_between_their_points_and_not_beyond() -> None:
    reached = [curves.nfe_to_reach(RISING, TASK, goal) for goal in (0.5, 0.0, 1.0)]
    assert reached == pytest.approx([8, 4, 16])
    assert curves.nfe_to_reach(curve(point([0.0] * 4, 4)), TASK, 0.5) is None
    assert [curves.accuracy_at(RISING, TASK, nfe) for nfe in (8, 1, 100)] == pytest.approx(
        [0.5, 0, 1]
    )


@pytest.mark.parametrize(
    ("method", "point", "overrides", "found"),
    [
        ("s3", {"particles": 3}, {}, (1.5, 7.0, 3)),
        ("s3", {"particles": 3}, {"lam": 0.0}, (1.5, 0.0, 3)),
        ("baseline", {}, {"temperature": 0.0}, (0.0, None, None)),
    ],
)
def test_what_was_chosen_counts_only_where_the_entry_is_free(
    method: str, point: rows.Given, overrides: rows.Given, found: tuple[float | None, ...]
) -> None:
    entry, chosen = (
        Entry("a", "other", method, (point,), overrides),
        {"temperature": 1.5, "lam": 7.0},
    )
    made = stages.settings_of(entry, 0, "countdown", defaults, chosen).to_json()
    assert tuple(made.get(name) for name in ("temperature", "lam", "particles")) == found


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_every_entry_is_a_curve_of_the_bundled_model(entry: Entry) -> None:
    """At least five points, all different, all accepted by the settings."""
    recommended, chosen = recommendations("tiny"), {"temperature": 1.0, "lam": 3.0}
    numbers = range(len(entry.points))
    found = [stages.settings_of(entry, n, "countdown", recommended, chosen) for n in numbers]
    assert len({settings.hash() for settings in found}) == len(entry.points) >= 5
    assert entry.what


def test_a_leave_one_out_entry_differs_from_ours_in_its_piece_alone() -> None:
    recommended = recommendations("tiny")
    ours = stages.settings_of(ENTRIES[rows.OURS], 2, "countdown", recommended, {}).to_json()
    for entry in (each for each in ENTRIES.values() if each.kind == "leave-one-out"):
        one = stages.settings_of(entry, 2, "countdown", recommended, {}).to_json()
        piece = {name for name in entry.overrides if entry.overrides[name] != "threshold"}
        changed = {n for n in one.keys() & (ours.keys() | piece) if ours.get(n) != one[n]}
        assert changed == piece & changed != set(), entry.name


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves of three points, on the fake model."""
    monkeypatch.setattr(registry, "load", lambda name, **_: small_model())
    monkeypatch.setattr(stages, "TEMPERATURES", (0.5, 1.5))
    monkeypatch.setattr(stages, "LAMBDAS", (1.0, 8.0))
    for name, entry in ENTRIES.items():
        monkeypatch.setitem(ENTRIES, name, replace(entry, points=entry.points[:3]))


Call = Callable[..., str]


@pytest.fixture
def call(small: None, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command as a user types it; returns what it prints."""

    def run(*words: str) -> str:
        command.frontier(words)
        return capsys.readouterr().out

    return run


SMALL = ["--task", "countdown", "--entries", "revise,restarts,no_checker,s3,greedy", "--limit", "1"]


def test_both_stages_as_a_user_types_them(
    call: Call, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out = tmp_path / "run"
    chosen = json.loads(call(str(out), "--tune", *SMALL, "--json"))
    assert set(chosen["s3"]) == {"temperature", "lam"}
    assert chosen["greedy"] == {}
    assert chosen["restarts"]["temperature"] in (0.5, 1.5)
    tuned = json.loads((out / "tuned.json").read_text())
    assert (tuned["split"], tuned["chosen"]) == ("validation", chosen)
    assert len(tuned["tried"]["s3"]) == 4
    read = {r.sample for folder in out.glob("tuning/*/*") for r in records.read(folder)}
    assert read
    assert all("-validation-" in sample for sample in read)

    made = json.loads(call(str(out), "--seeds", "2", *SMALL, "--json"))
    assert [table["title"] for table in made["tables"]] == [
        "Accuracy over NFE",
        "Against the controls",
        "What each piece is worth",
        "Other methods and controls",
        "Every task, at the point where each entry was tuned",
        "Settings and cost",
    ]
    values = {row[0]: row[1] for row in made["tables"][-1]["rows"]}
    assert values["`no_checker`"] == values["`revise`"] != "–"
    found = records.read(out / "test" / "s3")
    assert len(found) == 3  # one seed of two
    assert not any("-validation-" in r.sample for r in found)
    specs = json.loads((out / "test" / "s3" / "manifest.json").read_text())["conditions"]
    assert {c["settings"]["lam"] for c in specs} == {chosen["s3"]["lam"]}
    text = (out / "frontier.md").read_text()
    assert "chosen on the validation split" in text
    assert "Not tuned" not in text
    for name in ("frontier", "frontier_tasks"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 5000
        assert f"figures/{name}.png" in text

    request.getfixturevalue("undrawn")  # once is enough
    before = {path: path.read_bytes() for path in out.rglob("records.jsonl")}
    call(str(out), "--seeds", "2", *SMALL)  # resumes, and has nothing to do
    assert {path: path.read_bytes() for path in out.rglob("records.jsonl")} == before


@pytest.mark.usefixtures("undrawn")
def test_a_page_keeps_its_own_words_around_the_tables(call: Call, tmp_path: Path) -> None:
    docs, run = tmp_path / "docs", str(tmp_path / "run")
    (docs / "images").mkdir(parents=True)
    (docs / "appendix").mkdir()
    (docs / "frontier.md").write_text(f"# Ours\n{page.BEGIN}\nstale lines\n{page.END}\nEnd.\n")
    words = ["--limit", "1", "--seeds", "1", "--task", "countdown", "--entries", "s3,greedy"]
    call(run, *words, "--page", str(docs / "frontier.md"))
    text = (docs / "frontier.md").read_text()
    assert (text[:7], text[-5:], "stale lines" in text) == ("# Ours\n", "End.\n", False)
    assert "nothing was tuned for this run" in text
    assert (docs / "images" / "frontier.svg").is_file()
    call(run, "--show", "--page", str(docs / "appendix" / "frontier.md"))
    shown = (docs / "appendix" / "frontier.md").read_text()
    assert ("`s3`" in shown, "`greedy`" in shown, "images" in shown) == (True, True, False)
    (docs / "frontier.md").write_text("no marks")
    for mistake, error, said in (
        ([str(tmp_path / "other"), "--show"], RecordError, "has no records of these entries"),
        (
            [run, *words, "--page", str(docs / "frontier.md")],
            RecordError,
            "needs a line <!-- frontier",
        ),
        ([run, "--entries", "restart"], SettingsError, "did you mean 'restarts'"),
    ):
        with pytest.raises(error, match=said):
            call(*mistake)


@pytest.mark.usefixtures("small")
def test_tuning_reads_the_validation_split_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "fake", "--task", "countdown", "--method", "best_of_k,s3"]
    grid = ["--limit", "2", "--temperature", "0.5,1", "--lam", "1,4"]
    tune.main([*words, *grid, "--out", str(tmp_path), "--json"])
    best = json.loads(capsys.readouterr().out)
    assert set(best) == {"best_of_k", "s3"}
    assert set(best["s3"]) == {"temperature", "lam"}
    assert set(best["best_of_k"]) == {"temperature"}
    assert json.loads((tmp_path / "tuned.json").read_text()) == best
    assert all("-validation-" in record.sample for record in records.read(tmp_path))
    tried = tune.trials(tmp_path)
    values = {(trial.label, trial.temperature, trial.lam) for trial in tried}
    pairs = {("s3", temperature, lam) for temperature in (0.5, 1.0) for lam in (1.0, 4.0)}
    assert values == pairs | {("best_of_k", 0.5, None), ("best_of_k", 1.0, None)}
    assert tried == sorted(tried, key=lambda row: -row.accuracy)
