"""Fit p_correct of the bundled model and of LLaDA-8B-Instruct, and write the tables of docs/appendix/calibration.md.

    python -m tools.tiny.calibrate [--limit 120] [--test 60] [--out runs/calibrate]

Run it whenever the bundled weights change. Searches on the validation split of the generated tasks
give the fit (`s3dlm calibrate`); searches on test problems, which no fit has seen, give the figures of
the page. With S3DLM_DATA set to a folder that holds `llada8b_outputs.jsonl`, the outputs of
LLaDA-8B-Instruct are fitted, too; no data is written, only coefficients.
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from s3dlm.answers import extract
from s3dlm.answers.grading import grade
from s3dlm.evaluation import calibrate, figures, frames, tables
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.figures import styles_of
from s3dlm.evaluation.outputs import read_rows
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.run import Bars, evaluate
from s3dlm.models.folder import BUNDLED as FOLDERS
from s3dlm.models.registry import load
from s3dlm.verifier import for_task
from s3dlm.verifier.base import score_texts
from s3dlm.verifier.calibration import (
    CALIBRATION_FILE,
    GradedAnswer,
    bundled,
    read_calibrations,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "appendix" / "calibration.md"
METHODS = ("baseline", "best_of_k", "s3", "revise")
MORE = 5  # times as many problems for `revise`, which is cheap and seldom wrong
LLADA = "GSAI-ML/LLaDA-8B-Instruct"
LLADA_TASKS = ("gsm8k", "math500", "countdown")


def run(split: str, limit: int, folder: Path) -> None:
    """Evaluate all methods on a split; what is recorded already is not run again."""
    model = load("tiny")
    names = list(model.defaults.tasks)
    style = model.defaults.prompt_style
    problems = plans.load_problems(names, style, split=split, limit=limit * MORE)
    conditions = [
        replace(one, problems=limit * MORE if one.label == "revise" else limit)
        for one in plans.grid(names, METHODS, plans.recommendations(model))
    ]
    plan = plans.Plan(conditions, problems, range(1), split)
    with Bars(plan) as shown:
        evaluate(model, plan, folder, observer=shown)


def fit_llada(outputs: Path) -> str:
    """The bundled coefficients for LLaDA; answers of two lengths count as answers of `baseline`."""
    groups = {}
    for name in LLADA_TASKS:
        judge = for_task(name, "checker")
        # Each output is an answer of its own that nobody else agrees or disagrees with.
        groups[name, "baseline", "checker"] = [
            GradedAnswer(
                score=score_texts(judge, [(row.question, row.output, row.confidence)])[0].total,
                agreement=1.0,
                confidence=row.confidence,
                right=grade(name, row.output, row.gold, "fixed", row.question) == 1.0,
                question=row.question,
                answered=extract(name, row.output, row.question) is not None,
            )
            for row in read_rows(outputs, name)[0]
        ]
    source = calibrate.GradedAnswers(LLADA, None, groups)
    made, _ = calibrate.fit_groups(source.groups)
    calibrate.write_fits(source, made, bundled(LLADA))
    return "\n\n".join(table.to_markdown() for table in calibrate.tables(made))


def fill(page: str, mark: str, text: str) -> str:
    """A page with the text between two marks replaced."""
    start, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{text}\n{end}{after}"


def reliability(axis: Any, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    """How many answers of each bin were right against what was promised; larger dots are more."""
    styles = styles_of(whole.label)
    axis.plot([0, 1], [0, 1], ":", color="#000000", linewidth=1)
    for label, bins in rows.groupby("label", sort=False):
        how, size = styles[label], 6 + 60 * bins["count"] / bins["count"].max()
        axis.plot(bins.p_correct, bins.accuracy, color=how["color"], alpha=0.5)
        style = {"color": how["color"], "marker": how["marker"], "label": label}
        axis.scatter(bins.p_correct, bins.accuracy, s=size, **style)
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--limit", type=int, default=120, help="validation problems per task")
    words.add_argument("--test", type=int, default=60, help="test problems per task")
    words.add_argument("--out", type=Path, default=Path("runs/calibrate"))
    given = words.parse_args()
    page = PAGE.read_text(encoding="utf-8")

    run("validation", given.limit, given.out / "fit")
    source = calibrate.read_answers(given.out / "fit", "checker")
    made, skipped = calibrate.fit_groups(source.groups)
    old = read_calibrations(FOLDERS["tiny"] / CALIBRATION_FILE)
    print(calibrate.write_fits(source, made), *skipped, sep="\n")
    if (
        read_calibrations(FOLDERS["tiny"] / CALIBRATION_FILE) != old
    ):  # the test records hold probabilities by the old one
        shutil.rmtree(given.out / "test", ignore_errors=True)
    page = fill(page, "fit", "\n\n".join(table.to_markdown() for table in calibrate.tables(made)))

    run("test", given.test, given.out / "test")
    measured = frames.read(given.out / "test")
    found = calibrate.reliabilities(measured)
    page = fill(
        page, "test", tables.probability(measured, found).to_markdown().partition("\n\n")[2]
    )
    titles = {task: plans.title_of(task) for task in measured.tasks}
    rows = [
        (condition.task, condition.label, bin_.mean, bin_.accuracy, bin_.count)
        for condition, report in found.items()
        for bin_ in report.bins
    ]
    bins = pd.DataFrame(rows, columns=("task", "label", "p_correct", "accuracy", "count"))
    panels = [figures.Panels("reliability", "p_correct", "accuracy", reliability)]
    drawn, data = figures.Figure("", "", panels, {"sharey": True}), {"reliability": bins}
    make = partial(figures.paint, drawn, panels, data, titles)
    figures.save(make, "reliability", data, given.out / "figures")
    shutil.copy(given.out / "figures" / "reliability.png", ROOT / "docs" / "images")

    if "S3DLM_DATA" in os.environ:
        outputs = Path(os.environ["S3DLM_DATA"]) / "llada8b_outputs.jsonl"
        page = fill(page, "llada", fit_llada(outputs))
    write_atomic(PAGE, page)


if __name__ == "__main__":
    main()
