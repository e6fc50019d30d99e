"""A run as Markdown and as one HTML page, from its records alone; it need not be finished.

The page is self-contained: style, script, figures and data are embedded.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from s3dlm.answers.grading import gold_in_words
from s3dlm.evaluation import calibrate, comparisons, figures, frames, paper, series, tables
from s3dlm.evaluation.figures import FIGURES
from s3dlm.evaluation.formats import Table, percent
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.records import Failure, Record, write_atomic
from s3dlm.viewer.page import standalone

LISTED_FAILURES = 50  # failed samples in a report
SURVIVORS_OF = 200  # problems per task whose survivors' texts are embedded


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says, and where it is."""

    run: RecordedRun
    reference: str  # the method that all others are compared with
    title: str
    verdict: Sequence[str]
    facts: Mapping[str, str]  # model, problems, settings, machine
    tables: Sequence[Table]  # the first is the summary
    drawn: Mapping[str, str]  # the figures as SVG, by name; the first is the mean of the tasks
    markdown: Path
    html: Path

    @property
    def short(self) -> list[Table]:
        """What fits a terminal."""
        return tables.for_terminal(self.run, self.reference)

    def to_markdown(self) -> str:
        """Verdict, picture, tables, other figures and settings."""
        drawn = [FIGURES[name].to_markdown(f"figures/{name}.png") for name in self.drawn]
        shown = [table.to_markdown() for table in self.tables]
        settings = "\n".join(f"- **{name}**: {value}" for name, value in self.facts.items())
        parts = [*self.verdict, *drawn[:1], *shown, *drawn[1:], f"## Settings\n\n{settings}"]
        return "\n\n".join([f"# {self.title}", *parts]) + "\n"


def write(
    *folders: Path,
    grading: str | None = None,
    reference: str | None = None,
    out: Path | None = None,
) -> Report:
    """Read one run or several, grade them again if asked, and write report.md, report.html, figures/,
    and a page for every trace, which the list of problems links to."""
    run = frames.read(*folders, grading=grading)
    target, reference = out or folders[0], comparisons.reference_of(run, reference)
    for trace in (path for folder in folders for path in (folder / "traces").glob("*.jsonl")):
        if not trace.with_suffix(".html").exists():
            write_atomic(trace.with_suffix(".html"), standalone([trace]))
    regraded = frames.read(*folders, grading=paper.GRADING) if paper.in_papers_setting(run) else run
    several = len(run.tasks) > 1
    title = f"Mean of {len(run.tasks)} tasks" if several else title_of(run.tasks[0])
    titles = {**{task: title_of(task) for task in run.tasks}, "mean": title}
    data = series.series(run, grading or "fixed")
    drawn = {name: figures.draw(name, data, titles, target / "figures") for name in FIGURES}
    made = Report(
        run=run,
        reference=reference,
        title=f"s3dlm: {run.manifest.model} on {', '.join(map(title_of, run.tasks))}",
        verdict=_verdict(run, reference),
        facts=_facts(run, grading or "fixed"),
        tables=all_tables(run, regraded, reference),
        drawn={name: svg for name, svg in drawn.items() if svg is not None},
        markdown=target / "report.md",
        html=target / "report.html",
    )
    write_atomic(made.markdown, made.to_markdown())
    write_atomic(made.html, render_page(made))
    return made


def all_tables(run: RecordedRun, regraded: RecordedRun, reference: str) -> list[Table]:
    """Every table that the run has data for, in reading order; `regraded` goes beside the paper."""
    every = [
        tables.summary(run, reference),
        tables.accuracy(run),
        tables.beside_paper(run, regraded),
        tables.wording(run),
        comparisons.comparisons(run, reference),
        tables.cost(run),
        comparisons.sweep(run),
        tables.probability(run, calibrate.reliabilities(run)),
    ]
    return [table for table in every if table.rows]


def _verdict(run: RecordedRun, reference: str) -> list[str]:
    """What the comparison says, and what flatters it."""
    lines = comparisons.sentences(run, reference) or ["Nothing has been answered yet."]
    count = len(run.failures)
    failed = "1 sample failed and counts" if count == 1 else f"{count} samples failed and count"
    return [
        *lines,
        *calibrate.fitted_on(run),
        *([f"{failed} as wrong; the settings of the report list the reasons."] if count else []),
    ]


def _facts(run: RecordedRun, grading: str) -> dict[str, str]:
    plan, failed = run.manifest, len(run.failures)
    count = len(run.frame) - failed
    planned = sum(c.count(plan.counts[c.task], len(plan.seeds)) for c in plan.conditions)
    progress = f"{count} of {planned}" + (f", {failed} failed" if failed else "")
    settings = {c.label: c.settings.to_json() for c in plan.conditions if c.main}
    every = list(settings.values())
    first = every[0] if every else {}
    shared = {k: v for k, v in first.items() if all(each.get(k) == v for each in every)}
    return {
        "Model": f"{plan.model} (weights {plan.fingerprint})",
        "Problems": "; ".join(
            f"{title_of(task)}: {plan.counts[task]} ({plan.origins[task]})" for task in run.tasks
        ),
        "Prompts": f"{plan.prompt_style}, split {plan.split}",
        "Grading": grading,
        "Settings of all methods": _values(shared),
        **{f"Settings of {n}": _values(v, {*shared, "method"}) for n, v in settings.items()},
        "Seeds": ", ".join(map(str, plan.seeds)),
        "Records": progress + ("" if count + failed == planned else " (the run is unfinished)"),
        **({"Failed samples": _failed(run)} if run.failures else {}),
        "Versions": ", ".join(f"{name} {value}" for name, value in plan.versions.items()),
        "Machine": ", ".join(f"{name} {value}" for name, value in plan.machine.items()),
    }


def _values(values: Mapping[str, Any], left_out: Collection[str] = ()) -> str:
    """Settings in words, without the seed and what is left to the method."""
    known = {k: v for k, v in values.items() if v is not None and k not in ("seed", *left_out)}
    words = [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items()]
    return ", ".join(words) or "–"


def _failed(run: RecordedRun) -> str:
    """The samples that failed, with their reasons."""
    labels = {c.spec: f"{title_of(c.task)}, {c.label}" for c in run.manifest.conditions}
    words = [f"{labels[f.spec]}, {f.sample}, seed {f.seed}: {f.error}: {f.reason}" for f in run.failures]  # fmt: skip
    more = [f"and {len(words) - LISTED_FAILURES} more"] if len(words) > LISTED_FAILURES else []
    again = "`s3dlm eval … --retry-failed` runs them again"
    return "; ".join([*words[:LISTED_FAILURES], *more, again])


def render_page(made: Report) -> str:
    """The whole page."""
    run, labels = made.run, made.run.labels()
    pictures = {
        name: (FIGURES[name], base64.b64encode(svg.encode()).decode())
        for name, svg in made.drawn.items()
    }
    loader = jinja2.PackageLoader("s3dlm.evaluation", "assets")
    jinja = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return jinja.get_template("report.html.j2").render(
        made=made,
        points=[(row.label, percent(row.cell.accuracy), f"{row.cell.nfe:.1f}")
                for row in tables.by_method(run)],
        pictures=pictures,
        labels=labels,
        first=next((label for label in reversed(labels) if label != made.reference), ""),
        count=len(run.frame),
        data=problem_list(run, made.html.parent),
    )  # fmt: skip


def problem_list(run: RecordedRun, target: Path) -> dict[str, Any]:
    """The data of the problem list: grades, answer, output and votes of every main method."""
    listed = []
    for task in run.tasks:
        rows: dict[str, dict[str, Any]] = {sample.id: {} for sample in run.samples[task]}
        with_texts = list(rows)[:SURVIVORS_OF]
        for label, condition in run.main(task).items():
            for record in sorted(run.rows(condition), key=lambda row: row.seed):
                methods = rows[record.sample]
                if label not in methods:  # later seeds add their grades
                    texts = record.sample in with_texts
                    row = _row(run, condition, record, texts, target)
                    methods[label] = {"label": label, "grades": [], **row}
                methods[label]["grades"].append(record.correct)
        listed += [
            {"task": task, "id": sample.id, "question": sample.question,
             "gold": gold_in_words(sample.gold), "rows": list(rows[sample.id].values())}
            for sample in run.samples[task]
            if rows[sample.id]
        ]  # fmt: skip
    titles = {task: title_of(task) for task in run.tasks}
    return {"problems": listed, "titles": titles, "seeds": list(run.manifest.seeds)}


def _row(
    run: RecordedRun, condition: Condition, record: Record | Failure, with_texts: bool, target: Path
) -> dict[str, Any]:
    """One method's answer to one problem, with a link to the page of its trace if there is one; or why
    there is none."""
    if isinstance(record, Failure):
        failed: dict[str, Any] = {"answer": None, "p_correct": None, "trace": None, "survivors": []}
        return {**failed, "text": f"{record.error}: {record.reason}"}
    trace = run.folders[condition] / "traces" / f"{condition.spec}-{record.sample}.jsonl"
    page = Path(os.path.relpath(trace.with_suffix(".html"), target)).as_posix()
    kinds: dict[tuple[str | None, str], list[Any]] = {}  # [number, answer, score, text]
    for survivor in record.survivors:
        key = (survivor.answer, survivor.text if with_texts else "")
        kinds.setdefault(key, [0, survivor.answer, survivor.score, key[1]])[0] += 1
    return {
        "answer": record.answer,
        "text": record.text,
        "survivors": sorted(kinds.values(), key=lambda kind: -kind[0]),
        "p_correct": record.p_correct,
        "trace": page if trace.is_file() else None,
    }
