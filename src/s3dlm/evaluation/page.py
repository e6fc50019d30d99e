"""The report as one self-contained HTML page: style, script, figures and data are embedded."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from s3dlm.answers import gold_in_words
from s3dlm.evaluation import figures, series
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.tables import Table
from s3dlm.search.step import Step
from s3dlm.trace import read_trace

SURVIVORS_OF = 200  # problems per task whose survivors' texts are embedded
SPECIAL = re.compile(r"<\|[^|]*\|>|</?s>|\[(EOS|PAD|SEP)\]")  # as in the viewer


def render(
    run: Run,
    title: str,
    verdict: Sequence[str],
    facts: Mapping[str, str],
    tables: Sequence[Table],
    drawn: Mapping[str, str],
    reference: str,
    target: Path,
) -> str:
    """The whole page, to be written to the folder `target`; `drawn` are the figures as SVG by name."""
    loader = jinja2.PackageLoader("s3dlm.evaluation", "assets")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    labels = run.labels()
    return environment.get_template("report.html.j2").render(
        title=title,
        verdict=verdict,
        facts=facts,
        tables=tables,
        panels=_panels(run) if "accuracy_nfe" in drawn else [],
        figures={key: _encoded(svg) for key, svg in drawn.items() if key != "accuracy_nfe"},
        about=figures.FIGURES,
        names_in=_names_in,
        labels=labels,
        first=next((label for label in reversed(labels) if label != reference), ""),
        reference=reference,
        count=len(run.frame),
        data=problems(run, target),
    )


def _encoded(svg: str) -> str:
    return base64.b64encode(svg.encode()).decode()


def _panels(run: Run) -> list[tuple[str, str]]:
    """Accuracy over NFE, a picture per task, each with its points in words."""
    frame = series.accuracy_nfe(run)
    made = []
    for task, rows in frame.groupby("task", sort=False):
        words = "; ".join(
            f"{row.label}, N = {row.particles}, b = {row.branching}: {100 * row.accuracy:.1f} % "
            f"[{100 * row.low:.1f}, {100 * row.high:.1f}] at NFE {row.nfe:.0f}"
            for row in rows.itertuples()
        )
        svg = figures.panel(frame, {task: title_of(task)}, task)
        made.append((f"{title_of(task)}: {words}", _encoded(svg)))
    return made


def _names_in(table: Table) -> list[bool]:
    """Which columns hold names: they are aligned left, columns of numbers right."""
    return [all(cell[:1].isalpha() for cell in column) for column in zip(*table.rows, strict=True)]


def problems(run: Run, target: Path) -> dict[str, Any]:
    """The data of the problem list: grades, answer, output and votes of every main method."""
    listed = []
    for task in run.tasks:
        rows: dict[str, list[dict[str, Any]]] = {sample.id: [] for sample in run.samples[task]}
        with_texts = {sample.id for sample in run.samples[task][:SURVIVORS_OF]}
        for label, condition in run.main(task).items():
            for record in sorted(run.records[condition], key=lambda record: record.seed):
                known = rows[record.sample]
                if known and known[-1]["label"] == label:  # another seed
                    known[-1]["grades"].append(record.correct)
                else:
                    texts = record.sample in with_texts
                    known.append({"label": label, **_row(run, condition, record, texts, target)})
        listed += [
            {
                "task": task,
                "id": sample.id,
                "question": sample.question,
                "gold": gold_in_words(sample.gold),
                "rows": rows[sample.id],
            }
            for sample in run.samples[task]
            if rows[sample.id]
        ]
    titles = {task: title_of(task) for task in run.tasks}
    return {"problems": listed, "titles": titles, "seeds": list(run.manifest.seeds)}


def _row(
    run: Run, condition: Condition, record: Record, with_texts: bool, target: Path
) -> dict[str, Any]:
    """One method's answer to one problem; its trace is linked as an HTML page if there is one."""
    stem = run.folders[condition] / "traces" / f"{condition.spec}-{record.sample}"
    paths = [stem.with_name(stem.name + suffix) for suffix in (".html", ".jsonl")]
    trace = next((path for path in paths if path.is_file()), None)
    return {
        "grades": [record.correct],
        "answer": record.answer,
        "text": record.text,
        "survivors": _survivors(record, with_texts),
        "p_correct": record.p_correct,
        "trace": None if trace is None else Path(os.path.relpath(trace, target)).as_posix(),
        "story": _story(paths[1]),
    }


def _survivors(record: Record, with_texts: bool) -> list[list[Any]]:
    """[number of equal ones, answer, score, text], most frequent first."""
    kinds: dict[tuple[str | None, str], list[Any]] = {}
    for survivor in record.survivors:
        text = survivor.text if with_texts else ""
        key = (survivor.answer, text)
        kinds.setdefault(key, [0, survivor.answer, survivor.score, text])[0] += 1
    return sorted(kinds.values(), key=lambda kind: -kind[0])


def _story(path: Path) -> list[list[Any]]:
    """A recorded search in short: [step, score, text] whenever the leading look-ahead changed."""
    if not path.is_file():
        return []
    trace, told = read_trace(path), list[list[Any]]()
    for step in trace:
        if not isinstance(step, Step) or np.isnan(step.score).all():
            continue
        best = int(np.nanargmax(step.score))
        pieces = [trace.pieces.get(token, "·") for token in step.clean[best].tolist()]
        if "given" not in trace.header:  # a special token ends an answer
            pieces = list(takewhile(lambda piece: SPECIAL.fullmatch(piece) is None, pieces))
        text = "".join(pieces)
        if not told or told[-1][2] != text:
            told.append([step.index + 1, round(float(step.score[best]), 3), text])
    return told
