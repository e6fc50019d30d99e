"""The report of a small run: its numbers are the records', its page needs nothing and trusts nobody."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from s3dlm.errors import RecordError, SettingsError
from s3dlm.evaluation import (
    comparisons,
    figures,
    frames,
    paper,
    plan,
    records,
    report,
    series,
    tables,
)
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.run import evaluate
from s3dlm.models.defaults import Defaults
from s3dlm.verifier.calibration import AnswerCalibration, Calibrations, Fit
from tests.evaluation.small_run import BASE, defaults, small_model, small_plan, write_task

LABELS = ("greedy", "baseline", "best_of_k", "tilting", "look_ahead", "s3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a main comparison, both sweeps and a hostile question."""
    place = tmp_path_factory.mktemp("report")
    task = write_task(place, 6)
    path = place / "problems.jsonl"
    hostile = "</script><script>alert(1)</script> <b>&amp; Target: 24 Numbers: 6, 4, 12"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["question"] = hostile
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    main = small_plan(task, LABELS, traces=1)
    more = [
        *plan.grid(
            [task], ["best_of_k", "s3"], defaults, sweeps={"particles": [1, 2], "branching": [1, 2]}
        ),
        *plan.grid([task], ["baseline", "s3"], defaults, sweeps={"block_length": [8, 24]}),
    ]
    conditions = plan.unique([*main.conditions, *plan.as_sweep(more, 4)])
    whole = Plan(conditions, main.problems, main.seeds, traces=1)
    weights = {"intercept": -2.0, "score": 3.0, "agreement": 1.0, "confidence": 0.5}
    sure = Calibrations((Fit(task, "s3", "paper", AnswerCalibration(**weights)),))
    evaluate(dataclasses.replace(small_model(), calibrations=sure), whole, place / "run")
    report.write(place / "run")
    return place / "run"


def told(run: Run, records: Mapping[plan.Condition, Sequence[Record]], **changes: Any) -> Run:
    """The run as if these were its conditions and records."""
    manifest = dataclasses.replace(run.manifest, conditions=tuple(records), **changes)
    return dataclasses.replace(
        run, manifest=manifest, frame=frames.frame_of(manifest.conditions, records)
    )


def test_tables_say_what_the_records_say(folder: Path) -> None:
    run = frames.read(folder)
    (task,) = run.tasks
    s3 = run.main(task)["s3"]
    grades = [r.correct for r in records.read(folder) if r.spec == s3.spec]
    assert len(grades) == 12
    share = f"{100 * sum(grades) / 12:.1f}"
    (row,) = tables.accuracy(run).rows
    assert row[-1].lstrip("*").startswith(f"{share} [")
    assert row[1] == "6"
    assert share in (folder / "report.md").read_text()
    assert share in (folder / "report.html").read_text()


def test_comparisons_are_paired_on_the_same_problems_and_seeds(folder: Path) -> None:
    run = frames.read(folder)
    (task,) = run.tasks
    main = run.main(task)
    found, back = run.compare("s3", "best_of_k", task), run.compare("best_of_k", "s3", task)
    assert found.problems == 6
    assert (found.wins, found.losses) == (back.losses, back.wins)
    accuracy = {label: run.cells[condition].accuracy.value for label, condition in main.items()}
    assert found.difference.value == pytest.approx(accuracy["s3"] - accuracy["best_of_k"])


def test_the_mean_of_tasks_counts_tasks_equally(folder: Path) -> None:
    run = frames.read(folder)
    (task,) = run.tasks
    s3 = run.main(task)["s3"]
    only = run.mean_accuracy("s3")
    assert only.value == pytest.approx(run.cells[s3].accuracy.value)
    other = dataclasses.replace(s3, task="arc")
    few = [dataclasses.replace(r, correct=1.0) for r in run.records[s3][:1]]
    both = told(run, {**run.records, other: few})
    mean = both.mean_accuracy("s3")
    assert mean.value == pytest.approx((only.value + 1) / 2)
    assert 0 <= mean.low <= mean.value <= mean.high <= 1
    assert tables.brief(both).columns[-2:] == ("Mean [95 %]", "NFE")


@pytest.mark.usefixtures("undrawn")
def test_labels_name_what_was_compared(folder: Path, tmp_path: Path) -> None:
    run = frames.read(folder)
    for reference in ("best_of_k", "greedy"):
        grid = comparisons.comparisons(run, reference)
        assert f"Δ vs {reference}, points" in grid.columns
        assert {row[0] for row in grid.rows} == set(LABELS) - {reference}
        assert f"Δ accuracy vs {reference}" in comparisons.short_comparisons(run, reference).title
        (line,) = comparisons.verdict(run, reference)
        assert re.match(
            rf"s3 is (better|worse|not significantly different) (than|from) {reference} ", line
        )
    made = report.write(folder, reference="tilting", out=tmp_path)
    assert "Compared with tilting" in made.markdown.read_text()
    with pytest.raises(SettingsError, match="reference='best' is unknown; choose one of: base"):
        report.write(folder, reference="best", out=tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_a_method_that_was_not_run_is_not_named(tmp_path: Path) -> None:
    task = write_task(tmp_path, 2)
    evaluate(small_model(), small_plan(task, ("baseline", "s3"), seeds=(0,)), tmp_path / "run")
    made = report.write(tmp_path / "run")
    assert "best_of_k" not in "".join(made.verdict)
    text = " ".join(" ".join((g.title, *g.columns, *sum(g.rows, ()))) for g in made.short)
    assert "Δ accuracy vs baseline" in text
    assert "best_of_k" not in text


def test_intervals_stay_between_0_and_100_per_cent(folder: Path) -> None:
    run = frames.read(folder)
    texts = [
        cell for grid in report.all_tables(run, "greedy", []) for row in grid.rows for cell in row
    ]
    texts += [cell for row in tables.brief(run).rows for cell in row]
    found = [
        float(bound)
        for text in texts
        for pair in re.findall(r"(?<![+-])\b[0-9.]+ \[([0-9.-]+), ([0-9.]+)\]", text)
        for bound in pair
    ]
    assert len(found) > 20
    assert all(0 <= bound <= 100 for bound in found)
    assert not any("±" in text for text in texts)


@pytest.mark.usefixtures("undrawn")
def test_several_runs_stand_in_one_report(folder: Path, tmp_path: Path) -> None:
    task = next(iter(frames.read(folder).samples))
    other = dataclasses.replace(small_model(), name="other")
    second = small_plan(task, ("s3", "verified_best_of_k"), seeds=(0,), limit=4)
    evaluate(other, second, tmp_path / "second")
    merged = frames.read(folder, tmp_path / "second")
    assert comparisons.reference_of(merged) == "best_of_k"
    made = report.write(folder, tmp_path / "second", reference="s3 (run)", out=tmp_path / "out")
    assert "unfinished" not in made.markdown.read_text()
    (grid,) = [g for g in made.tables if g.key == "comparisons"]
    rows = {row[0]: row for row in grid.rows}
    assert {"s3 (second)", "verified_best_of_k", "greedy"} <= set(rows)
    assert rows["s3 (second)"][2:4] == ("+0.0 [+0.0, +0.0]", "0 : 0")  # the same model and settings
    assert "fake, other" in made.markdown.read_text()
    text = made.html.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    traces = [row["trace"] for p in json.loads(found[1])["problems"] for row in p["rows"]]
    assert any(traces)
    assert all((tmp_path / "out" / trace).is_file() for trace in traces if trace)


@pytest.mark.usefixtures("undrawn")
def test_runs_on_other_problems_are_not_compared(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    samples = (folder / "samples.jsonl").read_text().replace("Problem 0", "Puzzle 0")
    (tmp_path / "samples.jsonl").write_text(samples)
    (tmp_path / "records.jsonl").write_bytes((folder / "records.jsonl").read_bytes())
    with pytest.raises(RecordError, match=r"problems-0000 .* is another problem"):
        report.write(folder, tmp_path, out=tmp_path / "out")


def test_every_figure_has_svg_png_and_its_data(folder: Path) -> None:
    for name in figures.FIGURES:
        for suffix in ("svg", "png", "csv"):
            assert (folder / "figures" / f"{name}.{suffix}").stat().st_size > 100, (name, suffix)
    with (folder / "figures" / "accuracy_nfe.csv").open() as file:
        points = {(r["label"], r["particles"], r["branching"]) for r in csv.DictReader(file)}
    assert {("s3", "1", "1"), ("s3", "2", "2"), ("best_of_k", "4", "1")} <= points


def test_figures_are_the_same_bytes_every_time(folder: Path, tmp_path: Path) -> None:
    frame = series.confidence(frames.read(folder))
    first, second = (figures.draw("confidence", frame, {}, tmp_path / name) for name in "ab")
    assert first == second


def test_curves_compare_what_was_asked_of_all(folder: Path) -> None:
    run = frames.read(folder)
    points = series.accuracy_nfe(run).query("label == 's3' and particles == 2 and branching == 2")
    (row,) = points.to_dict("records")
    main = run.main(run.tasks[0])["s3"]
    common = [r for r in run.records[main] if r.seed == 0][:4]
    assert row["accuracy"] == pytest.approx(sum(r.correct for r in common) / 4)


def test_a_vote_says_how_many_distinct_texts_it_has(folder: Path) -> None:
    run = frames.read(folder)
    points = {c.children: c for c in run.manifest.conditions if c.label == "best_of_k"}
    grid = tables.distinct_texts(run)
    assert [row[0] for row in grid.rows] == [str(k) for k in sorted(points)] == ["1", "2", "4"]
    for k, shown in grid.rows:
        some = [r for r in run.records[points[int(k)]] if r.seed == 0][:4]
        counts = [len({one.text for one in r.survivors}) for r in some]
        assert max(counts) <= int(k)
        assert shown == f"{sum(counts) / 4:.1f}"


class _Page(HTMLParser):
    """Collects what a page would load and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "action")]


def test_the_page_needs_nothing_from_elsewhere(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.scripts == 2  # the data and the browser, whatever a question says
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "alert(1)</script>" not in text


def test_the_browser_has_every_problem_with_every_method(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert len(data["problems"]) == 6
    first = data["problems"][0]
    assert [row["label"] for row in first["rows"]] == list(LABELS)
    assert all(len(row["grades"]) == 2 for row in first["rows"])
    assert all((folder / row["trace"]).is_file() for row in first["rows"])
    assert "</script>" in data["problems"][1]["question"]


@pytest.mark.usefixtures("undrawn")
def test_grading_anew_needs_no_model_and_changes_no_record(folder: Path, tmp_path: Path) -> None:
    before = (folder / records.FILE).read_bytes()
    made = report.write(folder, grading="hex", out=tmp_path)
    assert "**Grading**: hex" in made.markdown.read_text()
    assert (folder / records.FILE).read_bytes() == before


def test_report_and_view_work_where_torch_cannot_be_imported(folder: Path, tmp_path: Path) -> None:
    trace = next((folder / "traces").glob("*.jsonl"))
    commands = [
        ["report", str(folder), "--out", str(tmp_path / "again")],
        ["report", str(folder), "--grading", "d1", "--out", str(tmp_path / "d1")],
        ["view", str(trace), "--out", str(tmp_path / "trace.html")],
    ]
    code = (
        "import json, sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in ('torch', 'transformers'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from s3dlm.cli.main import main\n"
        "from s3dlm.evaluation import figures\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['s3dlm', *words]\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code, words\n"
        "    figures.draw = lambda *_: None  # once is enough\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for made in ("again/report.html", "d1/report.html", "trace.html"):
        assert (tmp_path / made).is_file()


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_run_says_so(folder: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "samples.jsonl", "records.jsonl"):
        data = (folder / name).read_bytes()
        cut = data[: len(data) // 2] if name == "records.jsonl" else data
        (tmp_path / name).write_bytes(cut)
    assert "the run is unfinished" in report.write(tmp_path).markdown.read_text()


def test_the_papers_numbers_stand_beside_ours_only_in_its_setting() -> None:
    base = BASE.replace(
        gen_length=128, steps=64, block_length=64, particles=4, branching=2, lam=1.0
    )
    assert paper.same_setting("GSAI-ML/LLaDA-8B-Instruct", base)
    assert not paper.same_setting("tiny", base)
    assert not paper.same_setting("GSAI-ML/LLaDA-8B-Instruct", base.replace(block_length=32))
    assert paper.ACCURACY["math500"]["s3"] == 30.20
    assert paper.COST["gsm8k"]["s3"] == (3.07, 31660.45, 15858.32)


def test_table_4_has_every_block_length(folder: Path) -> None:
    grid = tables.block_cost(frames.read(folder))
    assert [row[1:3] for row in grid.rows] == [
        ("8", "baseline"), ("8", "s3"), ("24", "baseline"), ("24", "s3"),
    ]  # fmt: skip
    assert all(int(row[7]) > 0 for row in grid.rows)  # how many samples were timed
    assert not any("paper" in column for column in grid.columns)
    assert "Table 4" in (folder / "report.md").read_text()


def test_the_papers_tables_3_and_4_stand_beside_ours_in_its_setting(folder: Path) -> None:
    """The small run, told as if it were LLaDA in the paper's setting on GSM8K."""
    run = frames.read(folder)

    def retold(one: plan.Condition) -> plan.Condition:
        length = 64 if one.settings.block_length == 24 else 32
        own = {"gen_length": 128, "steps": 64, "block_length": length}
        if one.label == "s3" and one.main:
            own |= {"particles": 4, "branching": 2, "lam": 1.0}
        if one.label == "s3" and not one.main:
            own |= {"particles": 4, "branching": 2, "lam": 1.0} if length == 32 else {}
        return dataclasses.replace(one, task="gsm8k", settings=one.settings.replace(**own))

    kept = [c for c in run.manifest.conditions if c.main or c.settings.block_length != 24]
    new = {retold(c): run.records[c] for c in kept}
    same = told(run, new, model="GSAI-ML/LLaDA-8B-Instruct")
    accuracy, cost = tables.beside_paper(same)
    assert ("GSM8K", "s3", "70.21") in [row[:3] for row in accuracy.rows]
    (s3,) = [row for row in cost.rows if row[1] == "s3"]
    assert s3[2::2] == ("3.07", "31,660.45", "15,858.32")
    blocks = tables.block_cost(same)
    found = {row[1:3]: row[-3:] for row in blocks.rows}
    assert found["32", "s3"] == ("4.18", "25,640.80", "12,828.20")
    assert found["64", "baseline"] == ("3.06", "3,068.37", "1,530.94")


def test_figure_1_d_and_e_show_all_finished_texts(folder: Path) -> None:
    run = frames.read(folder)
    (task,) = run.tasks
    frame = series.sampling_search(series.finished_texts(run, "fixed"))
    for how, label in (("direct", "best_of_k"), ("s3", "s3")):
        texts = sum(len(one.survivors) for one in run.records[run.main(task)[label]])
        assert sum(frame.how == how) == texts
    assert (folder / "figures" / "sampling_search.svg").is_file()


def test_aime_is_among_the_tasks_of_a_large_model() -> None:
    assert "aime" in Defaults().tasks


def test_results_name_the_command_that_made_them(folder: Path, tmp_path: Path) -> None:
    report.write_results(folder, tmp_path / "results.md", ["reproduce", "--model", "tiny"])
    text = (tmp_path / "results.md").read_text()
    assert "s3dlm reproduce --model tiny" in text
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / picture).is_file()
    assert "images/results-accuracy_nfe.png" in text
    assert "| Task |" in text


def _graded(run: Run, right: dict[str, float], spent: dict[str, int]) -> Run:
    """The run as if this share of each method's problems had been solved, for these forward passes."""
    made = {
        c: [
            dataclasses.replace(
                r, correct=float(i < right[c.label] * len(some)), nfe=spent[c.label]
            )
            for i, r in enumerate(sorted(some, key=lambda r: r.sample))
        ]
        for c, some in run.records.items()
        if c.label in right
    }
    return told(run, made)


@pytest.mark.parametrize(
    ("right", "outcome"),
    [
        ({"greedy": 0.0, "s3": 1.0}, "better than"),
        ({"greedy": 1.0, "s3": 0.0}, "worse than"),
        ({"greedy": 0.5, "s3": 0.5}, "not significantly different from"),
    ],
)
def test_the_verdict_states_gain_cost_and_the_strongest_other(
    folder: Path, right: dict[str, float], outcome: str
) -> None:
    spent = {"greedy": 4, "s3": 24, "tilting": 30, "best_of_k": 8}
    run = _graded(frames.read(folder), {**right, "tilting": 0.9, "best_of_k": 0.1}, spent)
    (line,) = comparisons.verdict(run, "greedy")
    assert line.startswith(f"s3 is {outcome} greedy in accuracy: ")
    assert f"{100 * (right['s3'] - right['greedy']):+.1f} [" in line
    assert "for 24.0 NFE per problem instead of 4.0" in line
    better = right["greedy"] < 0.9
    assert ("compared with tilting, the most accurate other method, " in line) == better
    assert ("instead of 30.0" in line) == better


def test_the_tables_know_a_method_by_its_settings(folder: Path) -> None:
    """A λ of 0 does not tilt, whatever the method is called; and no method is left out of Table 1."""
    run = frames.read(folder)
    flat = {
        dataclasses.replace(
            c,
            label={"s3": "s3 (first)", "tilting": "mine"}.get(c.label, c.label),
            settings=c.settings.replace(lam=0.0) if c.label == "tilting" else c.settings,
        ): some
        for c, some in run.records.items()
    }
    other = told(run, flat)
    ticks = {row[0]: row[1:3] for row in tables.ablation(other).rows}
    assert ticks["s3 (first)"] == ("✓", "✓")
    assert ticks["mine"] == ("×", "×")
    assert tables.accuracy(other).columns[2:] == tuple(other.labels())
    assert tables.accuracy(run).columns[2:] == ("greedy", "baseline", "best_of_k", "s3")
