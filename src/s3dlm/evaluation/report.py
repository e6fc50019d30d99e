"""A run as Markdown and as one HTML page, from its records alone; it need not be finished."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.evaluation import comparisons, frames, page, probability, series, tables
from s3dlm.evaluation import figures as drawing
from s3dlm.evaluation.figures import FIGURES
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.probability import Reliability
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.tables import Table

FULL_PROBLEMS, FULL_SEEDS = 500, 3  # the size of the project's own comparison


@dataclass(frozen=True, slots=True)
class Report:
    """Where a report is, and its first statements."""

    markdown: Path
    html: Path
    verdict: Sequence[str]
    tables: Sequence[Table]
    short: Sequence[Table]  # what fits a terminal
    facts: Mapping[str, str]  # model, problems, settings, machine
    run: Run


def write(
    *folders: Path,
    grading: str | None = None,
    reference: str | None = None,
    out: Path | None = None,
    show: Callable[[Path], str] | None = None,
) -> Report:
    """Read one run or several, grade them again if asked, and write report.md, report.html, figures/.

    All methods are compared with `reference`.
    `show` renders a trace as an HTML page, which the list of problems then links to.
    """
    run = frames.read(*folders, grading=grading)
    target, against = out or folders[0], comparisons.reference_of(run, reference)
    traces = [trace for folder in folders for trace in sorted((folder / "traces").glob("*.jsonl"))]
    for trace in traces if show else ():
        if show is not None and not trace.with_suffix(".html").exists():
            write_atomic(trace.with_suffix(".html"), show(trace))
    reliabilities = probability.reliabilities(run)
    every, verdict = all_tables(run, against, reliabilities), _verdict(run, against)
    facts = _facts(run, grading or "fixed")
    title = f"s3dlm: {run.manifest.model} on {', '.join(title_of(task) for task in run.tasks)}"

    titles = {task: title_of(task) for task in run.tasks}
    data = series.series(run, grading or "fixed")
    data["reliability"] = probability.reliability_bins(reliabilities)
    drawn = {
        name: svg
        for name, frame in data.items()
        if (svg := drawing.draw(name, frame, titles, target / "figures")) is not None
    }
    text = [
        f"# {title}",
        *verdict,
        *(table.to_markdown() for table in every if not table.late),
        *(FIGURES[name].to_markdown(f"figures/{name}.png") for name in drawn),
        *(table.to_markdown() for table in every if table.late),
        _settings(facts),
    ]
    write_atomic(target / "report.md", "\n\n".join(text) + "\n")
    html = page.render(run, title, verdict, facts, every, drawn, against, target)
    write_atomic(target / "report.html", html)
    short = [tables.brief(run), comparisons.short_comparisons(run, against)]
    short = [table for table in short if table.rows]
    return Report(target / "report.md", target / "report.html", verdict, every, short, facts, run)


def all_tables(run: Run, against: str, reliabilities: Sequence[Reliability]) -> list[Table]:
    """Every table that the run has data for, in reading order."""
    every = [
        tables.accuracy(run),
        comparisons.comparisons(run, against),
        tables.ablation(run),
        *tables.beside_paper(run),
        tables.cost(run),
        tables.block_cost(run),
        tables.search(run),
        tables.sweep(run),
        tables.distinct_texts(run),
        probability.in_fit(run),
        probability.probability_table(reliabilities),
        tables.failures(run),
    ]
    return [table for table in every if table.rows]


def _verdict(run: Run, against: str) -> list[str]:
    """What the comparison says, and what flatters it."""
    lines = comparisons.verdict(run, against) or ["This run has no two methods to compare."]
    lines += [
        f"{label} on {title}: {count} problems were used to fit its verifier; accuracy on the "
        f"others: {others} %."
        for title, label, count, _, others in probability.in_fit(run).rows
    ]
    if run.failures:
        lines.append(
            f"{len(run.failures)} samples failed and are not counted; the report lists them."
        )
    return lines


def _facts(run: Run, grading: str) -> dict[str, str]:
    plan, count, failed = run.manifest, len(run.frame), len(run.failures)
    planned = sum(c.count(plan.counts[c.task], len(plan.seeds)) for c in plan.conditions)
    progress = f"{count} of {planned}" + (f", {failed} failed" if failed else "")
    settings = {c.label: c.settings.to_json() for c in plan.conditions if c.main}
    first = next(iter(settings.values()), {})
    shared = {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in settings.values())
    }
    return {
        "Model": f"{plan.model} (weights {plan.fingerprint})",
        "Problems": "; ".join(
            f"{title_of(task)}: {plan.counts[task]} ({plan.origins[task]})" for task in run.tasks
        ),
        "Prompts": f"style {plan.prompt_style}, split {plan.split}",
        "Grading": grading,
        "Settings of all methods": _values(shared),
        **{f"Settings of {n}": _values(v, {*shared, "method"}) for n, v in settings.items()},
        "Seeds": ", ".join(map(str, plan.seeds)),
        "Records": progress + ("" if count + failed == planned else " (the run is unfinished)"),
        "Versions": ", ".join(f"{name} {value}" for name, value in plan.versions.items()),
        "Machine": ", ".join(f"{name} {value}" for name, value in plan.machine.items()),
    }


def _values(values: Mapping[str, Any], left_out: Collection[str] = ()) -> str:
    """Settings in words, without the seed and what is left to the method."""
    known = {k: v for k, v in values.items() if v is not None and k not in ("seed", *left_out)}
    words = [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items()]
    return ", ".join(words) or "–"


def _settings(facts: Mapping[str, str]) -> str:
    return "## Settings\n\n" + "\n".join(f"- **{name}**: {value}" for name, value in facts.items())


def write_results(made: Report, path: Path, command: Sequence[str]) -> None:
    """A report as a documentation page: its tables, copies of its figures, the command that made it."""
    plan, pictures = made.run.manifest, []
    for name, about in FIGURES.items():
        drawn = made.html.parent / "figures" / f"{name}.png"
        if drawn.is_file():
            copy = path.parent / "images" / f"{path.stem}-{name}.png"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(drawn, copy)
            pictures.append(about.to_markdown(f"images/{copy.name}"))
    fewest, seeds = min(plan.counts.values()), len(plan.seeds)
    reduced = (
        f"**A reduced run**: {fewest} problems per task and {seeds} seed(s) instead of "
        f"{FULL_PROBLEMS} and {FULL_SEEDS}. Its intervals are too wide to rank methods. For the full "
        "comparison, run the command without `--limit`, `--seeds` and `--run sweep_problems`."
    )
    parts = [
        f"# Results on {plan.model}",
        "Tables and text were made by one command:",
        f"```\ns3dlm {shlex.join(command)}\n```",
        *([reduced] if fewest < FULL_PROBLEMS or seeds < FULL_SEEDS else []),
        "Temperature and λ of each method were chosen on the validation split "
        "([how](protocols.md#tuning)) and are listed at the end.",
        *made.verdict,
        *pictures,
        *(table.to_markdown() for table in made.tables),
        _settings(made.facts),
    ]
    write_atomic(path, "\n\n".join(parts) + "\n")
