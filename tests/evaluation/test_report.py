"""The report of a small run: its numbers are the records', its page needs nothing and trusts nobody."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from s3dlm.cli.main import main
from s3dlm.errors import RecordError, SettingsError
from s3dlm.evaluation import (
    calibrate,
    comparisons,
    figures,
    frames,
    paper,
    plan,
    records,
    report,
    series,
    statistics,
    tables,
)
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import evaluate
from s3dlm.evaluation.statistics import Interval
from s3dlm.models import registry
from s3dlm.verifier.weights import in_fit_half
from tests.evaluation.small_run import (
    HOSTILE,
    READ_LABELS,
    copy_run,
    small_model,
    small_plan,
    write_task,
)

CHROMIUM = Path("/usr/bin/chromium")


def told(
    run: RecordedRun, records: Mapping[plan.Condition, Sequence[Record]], **changes: Any
) -> RecordedRun:
    """The run as if these were its conditions and records."""
    manifest = dataclasses.replace(run.manifest, conditions=tuple(records), **changes)
    folders = dict.fromkeys(records, Path())
    return dataclasses.replace(run, manifest=manifest, records=records, folders=folders)


def embedded(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_tables_say_what_the_records_say(folder: Path, run: RecordedRun) -> None:
    s3 = run.main(run.tasks[0])["s3"]
    grades = [r.correct for r in records.read(folder) if r.spec == s3.spec]
    share = f"{100 * sum(grades) / 12:.1f}"
    (row,) = [row for row in tables.accuracy(run).rows if row[0] == "s3"]
    assert (len(grades), row[1:4]) == (12, ("✓", "✓", "6 × 2"))
    assert row[-1].lstrip("*").startswith(f"{share} [")
    assert all(share in (folder / f"report.{kind}").read_text() for kind in ("md", "html"))


def test_comparisons_are_paired_on_the_same_problems_and_seeds(run: RecordedRun) -> None:
    found, back = run.compare("s3", "best_of_k"), run.compare("best_of_k", "s3", run.tasks[0])
    accuracy = {label: cell.accuracy.value for label, cell in run.main_cells[run.tasks[0]].items()}
    assert (found.problems, found.wins, found.losses) == (6, back.losses, back.wins)
    assert found.difference.value == pytest.approx(accuracy["s3"] - accuracy["best_of_k"])


def test_what_runs_once_counts_for_every_seed(run: RecordedRun) -> None:
    """Greedy is the same for all seeds, so `reproduce` asks it once; it is compared with all of them."""
    greedy = run.main(run.tasks[0])["greedy"]
    first = [record for record in run.records[greedy] if record.seed == 0]
    once = told(run, {**run.records, greedy: first})
    assert once.compare("s3", "greedy") == run.compare("s3", "greedy")


def test_a_failed_sample_is_a_wrong_answer(folder: Path, run: RecordedRun) -> None:
    """Nothing that fails may raise an accuracy, nor leave a problem out of a comparison."""
    s3 = run.main(run.tasks[0])["s3"]
    wrong = next(record for record in run.records[s3] if not record.correct)
    failure = Failure(s3.spec, wrong.sample, wrong.seed, "ValueError", "a test")
    rest = [record for record in run.records[s3] if record is not wrong]
    failed = dataclasses.replace(told(run, {**run.records, s3: rest}), failures=[failure])
    assert failed.cells[s3].accuracy == run.cells[s3].accuracy
    assert failed.cells[s3].failed == 1
    assert failed.compare("s3", "greedy") == run.compare("s3", "greedy")
    assert report._verdict(failed, "greedy")[-1].startswith("1 sample failed and counts as wrong")
    assert "Failed" in tables.summary(failed, "greedy").columns
    assert "ValueError: a test" in report._facts(failed, "fixed")["Failed samples"]
    listed = {each["id"]: each["rows"] for each in report.problem_list(failed, folder)["problems"]}
    (row,) = [row for row in listed[wrong.sample] if row["label"] == "s3"]
    assert len(row["grades"]) == 2  # one of two seeds
    assert row["grades"][wrong.seed] == 0.0


@pytest.mark.parametrize("failed", [0, 2])
def test_a_run_without_a_result_has_a_report(tmp_path: Path, failed: int) -> None:
    """Nothing was answered yet, or everything failed."""
    asked = small_plan(write_task(tmp_path, 2), ("s3",), seeds=(0,))
    evaluate(small_model(), asked, tmp_path / "run")
    name = tmp_path / "run" / records.RECORDS
    run = json.loads(name.read_bytes().splitlines()[0])["run"]
    name.unlink()
    (condition,) = asked.conditions
    with records.Store(tmp_path / "run") as store:
        for sample in asked.problems[condition.task].samples[:failed]:
            store.append(Failure(condition.spec, sample.id, 0, "ValueError", "a test"), run)
    made = report.write(tmp_path / "run")
    assert made.verdict[-1].startswith("2 samples failed" if failed else "Nothing has been")
    assert made.html.is_file()


def test_methods_are_compared_on_the_problems_that_all_have(run: RecordedRun) -> None:
    s3 = run.main(run.tasks[0])["s3"]
    asked = sorted({record.sample for record in run.records[s3]})[:2]
    some = [record for record in run.records[s3] if record.sample in asked]
    fewer = told(run, {**run.records, s3: some})
    assert {cell.problems for cell in fewer.main_cells[run.tasks[0]].values()} == {2}
    assert "that all methods have been given" in tables.summary(fewer, "greedy").note


def test_a_further_column_is_one_value(run: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tables.Column(
        "Steps", lambda row: str(row.cell.condition.value("steps")), "summary cost"
    )
    monkeypatch.setattr(tables, "COLUMNS", (*tables.COLUMNS, steps))
    for table in (tables.summary(run, "greedy"), tables.cost(run)):
        assert (table.columns[-1], {row[-1] for row in table.rows}) == ("Steps", {"4"})


def test_columns_and_sections_without_content_are_absent(run: RecordedRun) -> None:
    shown = report.all_tables(run, run, "greedy")
    for table in shown:
        assert table.rows
        assert all(any(text != "–" for text in column) for column in zip(*table.rows, strict=True))
    assert "paper" not in [table.key for table in shown]
    assert "s per problem, paper" not in tables.cost(run).columns


def accuracy_of(label: str, run: RecordedRun) -> Interval:
    return next(row for row in tables.by_method(run) if row.label == label).cell.accuracy


def test_the_mean_of_tasks_counts_tasks_equally(run: RecordedRun) -> None:
    s3 = run.main(run.tasks[0])["s3"]
    only = accuracy_of("s3", run)
    assert only.value == pytest.approx(run.cells[s3].accuracy.value)
    few = [dataclasses.replace(r, correct=1.0) for r in run.records[s3][:1]]
    both = told(run, {**run.records, dataclasses.replace(s3, task="arc"): few})
    mean = accuracy_of("s3", both)
    assert mean.value == pytest.approx((only.value + 1) / 2)
    assert 0 <= mean.low <= mean.value <= mean.high <= 1
    table = tables.summary(both, "greedy")
    place = table.columns.index("Mean [95 %]")
    assert [row[0] for row in table.rows if row[place] != "–"] == [
        "s3"
    ]  # the only one on both tasks


@pytest.mark.usefixtures("undrawn")
def test_labels_name_what_was_compared(folder: Path, run: RecordedRun, tmp_path: Path) -> None:
    table = comparisons.comparisons(run, "greedy")
    assert {row[0] for row in table.rows if row[1] == "greedy"} == {*READ_LABELS} - {"greedy"}
    assert "Gain over greedy" in tables.for_terminal(run, "greedy")[1].title
    made = report.write(folder, reference="tilting", out=tmp_path)
    assert "Points vs tilting" in made.markdown.read_text()
    with pytest.raises(SettingsError, match=r"'best' is unknown; did you mean 'best_of_k'\?"):
        report.write(folder, reference="best", out=tmp_path)


def test_a_single_method_has_a_sentence_of_its_own(run: RecordedRun) -> None:
    alone = told(run, {c: rows for c, rows in run.records.items() if c.label == "s3" and c.main})
    (line,) = comparisons.sentences(alone, "s3")
    assert re.fullmatch(r"s3 answers .* % of 6 problems right .* without sharing\)\.", line)


@pytest.mark.usefixtures("undrawn")
def test_several_runs_stand_in_one_report(folder: Path, run: RecordedRun, tmp_path: Path) -> None:
    other = dataclasses.replace(small_model(), name="other")
    second = small_plan(run.tasks[0], ("s3", "verified_best_of_k"), seeds=(0,), limit=4)
    evaluate(other, second, tmp_path / "second")
    assert comparisons.reference_of(frames.read(folder, tmp_path / "second")) == "best_of_k"
    made = report.write(folder, tmp_path / "second", reference="s3 (run)", out=tmp_path / "out")
    assert "unfinished" not in made.markdown.read_text()
    assert "fake, other" in made.markdown.read_text()
    (table,) = [table for table in made.tables if table.key == "comparisons"]
    rows = {row[0]: row[2:] for row in table.rows if row[1] == "s3 (run)"}
    assert {"s3 (second)", "verified_best_of_k", "greedy"} <= set(rows)
    assert rows["s3 (second)"][1:3] == ("+0.0 [+0.0, +0.0]", "0 : 0")  # the same model and settings
    traces = [row["trace"] for p in embedded(made.html)["problems"] for row in p["rows"]]
    assert any(traces)
    assert all((tmp_path / "out" / trace).is_file() for trace in traces if trace)


def test_every_figure_has_svg_png_and_its_data(
    folder: Path, run: RecordedRun, tmp_path: Path
) -> None:
    for name, about in figures.FIGURES.items():
        files = {f"{name}.svg", f"{name}.png", *(f"{row.data}.csv" for row in about.rows)}
        assert all((folder / "figures" / file).stat().st_size > 100 for file in files), files
    frame = pd.read_csv(folder / "figures" / "accuracy_nfe.csv")
    points = set(zip(frame.label, frame.particles, frame.branching, strict=True))
    assert {("s3", 1, 1), ("s3", 2, 2), ("best_of_k", 4, 1)} <= points
    data = series.series(run)
    drawn = [figures.draw("scaling", data, {}, tmp_path / n) for n in "ab"]
    assert drawn[0] == drawn[1]  # the same bytes every time


def test_curves_compare_what_was_asked_of_all(run: RecordedRun) -> None:
    swept = series.curve_points(run.swept("particles", "branching"))
    points = swept.query("label == 's3' and particles == 2 and branching == 2")
    common = [r for r in run.records[run.main(run.tasks[0])["s3"]] if r.seed == 0][:4]
    assert list(points.accuracy) == [pytest.approx(sum(r.correct for r in common) / 4)]


def test_scores_are_counted_from_the_first_step_to_the_last(run: RecordedRun) -> None:
    s3 = run.main(run.tasks[0])["s3"]
    rising = [dataclasses.replace(run.records[s3][0], scores=((2, 2), (50, 98), (98, 98)))]
    frame = series.scores(told(run, {s3: rising}), series.finished_texts(run, "fixed"))
    steps = {at: frame[frame.progress == at].set_index("score").share for at in (0.0, 0.5, 1.0)}
    assert [list(share[share > 0]) for share in steps.values()] == [[1.0], [0.5, 0.5], [1.0]]
    assert (steps[0.0].idxmax(), steps[1.0].idxmax()) == pytest.approx((0.02, 0.98))
    assert frame[frame.progress.isna()].share.sum() == pytest.approx(1)  # without search


def test_figure_1_shows_all_finished_texts(run: RecordedRun) -> None:
    frame = series.finished_texts(run, "fixed")
    for how, label in (("direct", "best_of_k"), ("s3", "s3")):
        texts = sum(len(r.survivors) for r in run.records[run.main(run.tasks[0])[label]])
        assert sum(frame.how == how) == texts


def test_the_page_needs_nothing_from_elsewhere(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert text.count("<script") == 2  # the data and the browser, whatever a question says
    sources = re.findall(r'<[^>]*?\s(?:src|href|srcset|action)="([^"]*)"', text)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "alert(1)</script>" not in text
    order = ('class="verdict"', 'id="mean"', 'id="summary"', 'id="accuracy"', 'id="problems"')
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert re.search(r'alt="Accuracy against compute: .*best_of_k [\d.]+ \[', text)
    assert text.count("<details class") == text.count("<h2>") - 1  # all but the summary fold


def test_the_page_escapes_labels_and_titles(run: RecordedRun, tmp_path: Path) -> None:
    hostile = {dataclasses.replace(c, label=f"<b>{c.label}"): r for c, r in run.records.items()}
    other = told(run, hostile)
    svg = figures.draw("mean", series.series(other), {"mean": "<i>&"}, tmp_path)
    assert svg is not None
    assert "<b>" not in svg
    assert "<i>" not in svg
    facts, page = {"<u>": "<u>"}, Path("report.html")
    shown = report.all_tables(other, other, "<b>s3")
    made = report.Report(other, "", "<i>", ["<i>"], facts, shown, {}, page, page)
    html = report.render_page(made)
    assert not re.search("<[biu]>", html)


def test_the_browser_has_every_problem_with_every_method(folder: Path) -> None:
    problems = embedded(folder / "report.html")["problems"]
    assert len(problems) == 6
    assert problems[1]["question"] == HOSTILE
    rows = {row["label"]: row for row in problems[0]["rows"]}
    assert list(rows) == list(READ_LABELS)
    assert all(len(row["grades"]) == 2 for row in rows.values())
    assert all((folder / row["trace"]).is_file() for row in rows.values())
    assert sum(count for count, *_ in rows["s3"]["survivors"]) == 2
    assert all("<answer>" in text for *_, text in rows["s3"]["survivors"])


def test_a_changed_gold_is_noticed(folder: Path, tmp_path: Path) -> None:
    path = copy_run(folder, tmp_path) / "samples.jsonl"
    text = path.read_text()
    changed = [text.replace("],22]", "],23]", 1), text[:-1] + "\x0b", text.replace("sum", "sun", 1)]
    for damaged in changed:
        assert damaged != text
        path.write_text(damaged)
        with pytest.raises(RecordError, match=r"samples\.jsonl, line \d+,.*restore it"):
            frames.read(tmp_path, grading="fixed")


def test_runs_on_other_problems_are_not_compared(folder: Path, tmp_path: Path) -> None:
    path = copy_run(folder, tmp_path) / "samples.jsonl"
    rows = [json.loads(records.unseal(line)) for line in path.read_bytes().splitlines()]
    rows[0]["question"] = rows[0]["question"].replace("Problem 0", "Puzzle 0")
    path.write_bytes(b"".join(map(records.seal, rows)))
    with pytest.raises(RecordError, match=r"problems-0000 .* is another problem"):
        frames.read(folder, tmp_path)


NO_TORCH = """import json, sys
class Missing:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("torch", "transformers"): raise ImportError(name)
sys.meta_path.insert(0, Missing())
from s3dlm.evaluation import figures
figures.FIGURES.clear()  # scipy looks at sys.modules["torch"]; drawing takes most of the time
from s3dlm.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["s3dlm", *words]
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code or 0)
"""


def without_torch(*commands: Sequence[str]) -> str:
    """What the commands print where it is not installed."""
    words = [sys.executable, "-c", NO_TORCH, json.dumps(commands)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_reads_works_where_torch_cannot_be_imported(folder: Path, tmp_path: Path) -> None:
    """Also a report with another grading, which changes no record."""
    trace, before = (
        next((folder / "traces").glob("*.jsonl")),
        (folder / records.RECORDS).read_bytes(),
    )
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text('{"question": "6 * 7?", "output": "6 * 7 = 42. #### 42", "gold": 42}')
    said = without_torch(
        ["report", str(folder), "--grading", "d1_whole", "--out", str(tmp_path / "d1")],
        ["view", str(trace), "--out", str(tmp_path / "trace.html")],
        ["score", str(outputs), "--task", "gsm8k"],
    )
    assert "exit code 2" not in said, said
    assert all((tmp_path / made).is_file() for made in ("d1/report.html", "trace.html")), said
    assert "accuracy: fixed 100.00 %" in said
    assert "**Grading**: d1_whole" in (tmp_path / "d1" / "report.md").read_text()
    assert (folder / records.RECORDS).read_bytes() == before


def test_an_evaluation_runs_where_the_report_cannot(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(registry, "load", lambda name, **_: small_model())
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in ("frames", "report"):
        monkeypatch.delitem(sys.modules, f"s3dlm.evaluation.{name}")
    out = tmp_path / "run"
    run = ["eval", "--task", write_task(tmp_path, 1), "--method", "baseline", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["s3dlm", *run])
    main()
    assert len(records.read(out)) == 1
    monkeypatch.setattr(sys, "argv", ["s3dlm", "report", str(folder)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    missing = "pandas is not installed; run: pip install 's3dlm[report]'"
    said = capsys.readouterr().err
    assert f"no report: {missing}; then: s3dlm report {out}" in said
    assert said.count(missing) == 2


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_run_says_so(folder: Path, tmp_path: Path) -> None:
    path = copy_run(folder, tmp_path) / records.RECORDS
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "the run is unfinished" in report.write(tmp_path).markdown.read_text()


def test_table_5_has_every_block_length(folder: Path, run: RecordedRun) -> None:
    table = tables.cost(run)
    points = {(row[1], row[2]) for row in table.rows}
    assert {("baseline", "8"), ("s3", "8"), ("baseline", "24"), ("s3", "24")} <= points
    assert not any("paper" in column for column in table.columns)
    assert "Tables 4 and 5" in (folder / "report.md").read_text()


def test_the_papers_numbers_stand_beside_ours_only_in_its_setting(run: RecordedRun) -> None:
    """The small run, told as if it were LLaDA in the paper's setting on GSM8K."""
    model, theirs = "GSAI-ML/LLaDA-8B-Instruct", {"gen_length": 128, "steps": 64}
    searched = {"particles": 4, "branching": 2, "lam": 1.0}

    def retold(condition: plan.Condition) -> plan.Condition:
        length = 64 if condition.settings.decoding.block_length == 24 else 32
        own = {**theirs, "block_length": length, **(searched if condition.label == "s3" else {})}
        settings = condition.settings.replace(**own)
        return dataclasses.replace(condition, task="gsm8k", settings=settings)

    kept = [c for c in run.manifest.conditions if c.main or c.settings.decoding.block_length != 24]
    machine = {"parameters": paper.PARAMETERS}
    same = told(run, {retold(c): run.records[c] for c in kept}, machine=machine)
    table = tables.cost(same)
    names = [table.columns.index(n) for n in ("Answer tokens, paper", "s per problem, paper")]
    found = {row[1:3]: tuple(row[place] for place in names) for row in table.rows}
    assert found["s3", "64"] == ("3.07", "24.003")  # 31,660.45 s for 1319 problems
    assert found["s3", "32"] == ("4.18", "19.440")
    assert not paper.in_papers_setting(told(run, same.records, model=model, machine={}))
    other = {
        dataclasses.replace(c, settings=c.settings.replace(steps=32)): some
        for c, some in same.records.items()
    }
    assert not paper.in_papers_setting(told(run, other, machine=machine))


@pytest.mark.parametrize(
    ("value", "half", "words"),
    [(0.7, 0.01, "yes"), (0.7, 0.02, "too few problems"), (0.5, 0.01, "no")],
)
def test_an_interval_wider_than_the_papers_gain_says_nothing(
    run: RecordedRun, value: float, half: float, words: str
) -> None:
    cell = run.cells[run.main(run.tasks[0])["s3"]]
    condition = dataclasses.replace(cell.condition, task="gsm8k")
    near = Interval(value, value - half, value + half)
    assert paper.agreement(dataclasses.replace(cell, condition=condition, accuracy=near)) == words


@pytest.mark.parametrize(
    ("greedy", "s3", "outcome"),
    [
        (0.0, 1.0, "better than"),
        (1.0, 0.0, "worse than"),
        (0.5, 0.5, "not significantly different from"),
    ],
)
def test_the_verdict_states_gain_cost_and_the_strongest_other(
    run: RecordedRun, greedy: float, s3: float, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run as if these shares of the problems had been solved, for these forward passes."""
    right = {"greedy": (greedy, 4), "s3": (s3, 24), "tilting": (0.9, 30), "best_of_k": (0.1, 8)}

    def solved(rows: Sequence[Record], share: float, nfe: int) -> list[Record]:
        order = sorted(rows, key=lambda row: row.sample)
        return [dataclasses.replace(row, correct=float(n < share * len(rows)), nfe=nfe)
                for n, row in enumerate(order)]  # fmt: skip

    made = {c: solved(r, *right[c.label]) for c, r in run.records.items() if c.label in right}
    (line,) = comparisons.sentences(told(run, made), "greedy")
    top = "tilting" if greedy < 0.9 else "greedy"
    strongest = f"{top}, the most accurate other method, in accuracy: "
    assert line.startswith(f"s3 is not yet distinguishable from {strongest}")  # six problems
    assert "too few problems to judge" in line
    monkeypatch.setattr(statistics, "LEAST_PROBLEMS", 5)
    (line,) = comparisons.sentences(told(run, made), "greedy")
    assert strongest in line
    assert f"s3 is {outcome} greedy" in line or f"it is {outcome} greedy: " in line
    assert f"{100 * (s3 - greedy):+.1f} [" in line
    assert "for 24.0 instead of 4.0 passes per problem, or " in line  # and without sharing
    assert ("for 24.0 instead of 30.0" in line) == (top == "tilting")


def test_the_tables_know_a_method_by_its_settings(run: RecordedRun) -> None:
    """Whatever a method is called; and no method is left out of Table 1."""
    names = {"s3": "s3 (first)", "tilting": "mine"}
    flat = {dataclasses.replace(c, label=names.get(c.label, c.label)): some
            for c, some in run.records.items()}  # fmt: skip
    other = told(run, flat)
    ticks = {row[0]: row[1:3] for row in tables.accuracy(other).rows}
    assert list(ticks) == other.labels()
    assert (ticks["s3 (first)"], ticks["mine"]) == (("✓", "✓"), ("×", "✓"))


@pytest.mark.usefixtures("undrawn")
def test_problems_on_which_the_verifier_was_fitted_are_flagged(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 4?", "gold": n + 4} for n in range(12)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = f"{tmp_path / 'sums.jsonl'}:gsm8k"
    evaluate(small_model(), small_plan(task, ("best_of_k", "revise"), (0,)), tmp_path / "run")
    made = report.write(tmp_path / "run")
    (line,) = calibrate.fitted_on(made.run)
    seen = sum(in_fit_half(str(row["question"])) for row in rows)
    assert 0 < seen < 12
    assert line.startswith("revise on ")
    assert f"{seen} of 12 problems were used to fit its verifier" in line
    assert line in made.verdict
    assert line in made.markdown.read_text()
    (revise,) = [c for c in made.run.main_conditions if c.label == "revise"]
    rest = [Failure(r.spec, r.sample, r.seed, "ValueError", "") for r in made.run.records[revise]]
    lost = dataclasses.replace(told(made.run, {revise: []}), failures=rest)
    (line,) = calibrate.fitted_on(lost)
    assert line.endswith("accuracy on the others: 0.0 %.")  # what failed is wrong


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip("no browser: /usr/bin/chromium is missing (`make browser`)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield running
        running.close()


SMALLEST = """() => Math.min(...[...document.querySelectorAll("body *")]
  .filter((node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
  .filter((node) => node.getClientRects().length && !node.closest("script, style, title"))
  .map((node) => parseFloat(getComputedStyle(node).fontSize)))"""


@pytest.mark.parametrize(
    ("width", "scheme", "background"),
    [(1200, "light", "rgb(255, 255, 255)"), (390, "dark", "rgb(15, 19, 26)")],
)
def test_it_fits_and_can_be_read(
    browser: Any, folder: Path, width: int, scheme: str, background: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto((folder / "report.html").as_uri())
    page.locator("summary h2", has_text="Problems").click()
    page.locator(".problem details summary").first.click()
    page.evaluate("document.querySelectorAll('details.part').forEach((p) => { p.open = true; })")
    too_wide = """() => [...document.querySelectorAll("main table, main img, main dl")].filter((node) =>
      node.getBoundingClientRect().right > document.documentElement.clientWidth)"""
    assert page.evaluate(f"({too_wide})().map((node) => node.outerHTML.slice(0, 200))") == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALLEST) >= 11
    assert page.locator("#mean img").first.bounding_box()["width"] >= 300  # or text is too small
    cells = (f".problem tr:first-child > td:nth-child({n})" for n in (2, 3))
    marks, answer = (page.locator(cell).first.bounding_box() for cell in cells)
    assert marks["x"] + marks["width"] <= answer["x"] + 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
    page.close()


def test_problems_can_be_searched(browser: Any, folder: Path) -> None:
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    page.locator("summary h2", has_text="Problems").click()
    assert page.locator(".problem").count() == 6
    for words, least, most in (
        ("problem 3.", 1, 1),
        ("6*4*12</answer>", 1, 6),  # words of an output
        ("nothing has this", 0, 0),
    ):
        page.fill("#words", words)
        assert least <= page.locator(".problem").count() <= most
    page.close()
