"""A run as Markdown and as one HTML page, from its records alone; it need not be finished."""

from __future__ import annotations

import functools
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm import answers, tasks, verifier
from s3dlm.errors import MissingExtraError
from s3dlm.evaluation import (
    comparisons,
    figures,
    in_fit,
    page,
    probability,
    series,
    summary,
    tables,
)
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.probability import Sureness
from s3dlm.evaluation.records import Candidate, write_atomic
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, title_of
from s3dlm.tasks import Sample

FULL_PROBLEMS, FULL_SEEDS = 500, 3  # the size of the project's own comparison

CAPTIONS: dict[str, tuple[str, str]] = {
    "accuracy_nfe": (
        "Accuracy against compute",
        "Accuracy with 95 % intervals over NFE, the forward passes per problem, for every (N, b) of "
        "the run, on the problems that all of them share. N grows along a line.",
    ),
    "confidence": (
        "Confidence over denoising",
        "Mean probability of the answer's tokens at every step: for revealed tokens at the step "
        "that revealed them, for masked ones in the current block that of the best token.",
    ),
    "block_length": (
        "Accuracy over block length",
        "Accuracy with 95 % intervals at the main budget for every block length of the run.",
    ),
    "score_density": (
        "Verifier scores along the search",
        "Kernel density of the children's scores at five points of the search; dashed: finished "
        "samples without search (best_of_k).",
    ),
    "score_heat": (
        "Verifier scores at every step",
        "Share of s3's children in each band of verifier scores, step by step.",
    ),
    "density_quality": (
        "Density and quality",
        "Samples without search, ordered by the model's log-density. Top: where the model puts its "
        "mass. Middle: mean verifier score and accuracy there. Bottom: the target tilted by "
        "exp(λ·score) within each problem, and the base (dashed).",
    ),
    "sampling_search": (
        "Sampling without search and with s3",
        "Figure 1(d) and 1(e): each point is a finished text, at its log-density per token and its "
        "verifier score; filled points are right. Top: samples without search. Bottom: survivors of s3. "
        "The cross is the mean.",
    ),
    "best_of_k_bound": (
        "Best of K against its bound",
        "Mean over problems of the best verifier score among K samples without search, and of the bound "
        "mean + σ·√(2 ln K) with each problem's own mean and σ.",
    ),
    "reliability": (
        "Reliability of p_correct",
        "Answers in bins of p_correct, a tenth wide: how many were right against what was promised. "
        "On the dotted line both are equal; larger dots are more answers.",
    ),
}


@dataclass(frozen=True, slots=True)
class Report:
    """Where a report is, and its first statements."""

    markdown: Path
    html: Path
    verdict: Sequence[str]
    grids: Sequence[Grid]
    short: Sequence[Grid]  # what fits a terminal
    notes: Sequence[str]


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
    run = read(folders, grading)
    target = out or folders[0]
    against = comparisons.reference_of(run, reference)
    traces = [trace for folder in folders for trace in sorted((folder / "traces").glob("*.jsonl"))]
    for trace in traces if show else ():
        shown = trace.with_suffix(".html")
        if show is not None and not shown.exists():
            write_atomic(shown, show(trace))
    sure = probability.sureness(run)
    drawn, notes = _draw(run, target / "figures", grading or "fixed", sure)
    grids = _tables(run, against, sure)
    verdict = comparisons.verdict(run, against) or ["This run has no two methods to compare."]
    verdict = [*verdict, *in_fit.warnings(in_fit.in_fit(run))]
    facts = _facts(run, grading or "fixed")
    title = f"s3dlm: {run.manifest.model} on {', '.join(title_of(task) for task in run.tasks)}"
    if run.failures:
        verdict = [
            *verdict,
            f"{len(run.failures)} samples failed and are not counted; the report lists them.",
        ]
    text = markdown(title, verdict, facts, grids, drawn)
    write_atomic(target / "report.md", text)
    pictures = [(key, *CAPTIONS[key], svg) for key, svg in drawn.items()]
    html = page.render(run, title, verdict, facts, grids, pictures, against, target)
    write_atomic(target / "report.html", html)
    short = [t for t in (tables.brief(run), comparisons.short_comparisons(run, against)) if t.rows]
    return Report(target / "report.md", target / "report.html", verdict, grids, short, notes)


def read(folders: Sequence[Path], grading: str | None = None) -> Evaluation:
    """One run, or several as one, named by their folders."""
    grade = summary.regrade(grading) if grading else None
    names = [folder.name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    runs = [summary.read(folder, grade) for folder in folders]
    return summary.merge(list(zip(names, runs, strict=True)))


def _tables(run: Evaluation, against: str, sure: Sequence[Sureness]) -> list[Grid]:
    """Every table that has rows, in reading order."""
    first = tables.all_tables(run, comparisons.comparisons(run, against))
    others = (in_fit.table(in_fit.in_fit(run)), probability.table(sure), tables.failures(run))
    return [*first, *(grid for grid in others if grid.rows)]


def _draw(
    run: Evaluation, folder: Path, grading: str, sure: Sequence[Sureness]
) -> tuple[dict[str, str], list[str]]:
    """The figures that the run has data for, as SVG by name; without matplotlib none, and a note."""
    score, mark = scorer(run), marker(grading)
    samples = {task: series.direct(run, task, score, mark) for task in run.tasks}
    every: list[Table] = [
        series.accuracy_nfe(run),
        series.confidence(run),
        series.block_length(run),
        series.score_density(run, samples),
        series.score_heat(run),
        series.density_quality(run, samples),
        series.sampling_search(run, samples, score, mark),
        series.bound(run, samples),
        probability.reliability(sure),
    ]
    titles = {task: title_of(task) for task in run.tasks}
    drawn = {}
    try:
        for table in every:
            svg = figures.draw(table, titles, folder)
            if svg is not None:
                drawn[table.name] = svg
    except MissingExtraError as error:
        return {}, [f"no figures: {error}"]
    return drawn, []


def scorer(run: Evaluation) -> series.Score:
    """The verifier's score of a recorded text; recorded scores are used as they are."""

    @functools.cache
    def of_task(task: str) -> verifier.Verifier:
        scored = (c.value("verifier") for c in run.main(task).values())
        return verifier.for_task(tasks.get(task).verifier, next(filter(None, scored), "paper"))

    def score(task: str, question: str, one: Candidate) -> float:
        if one.score is not None:
            return one.score
        return float(of_task(task).score(question, one.text, one.confidence).total)

    return score


def marker(grading: str) -> series.Mark:
    """Grades texts, each text of a problem once."""
    known: dict[tuple[str, str], float] = {}

    def mark(task: str, sample: Sample, text: str) -> float:
        key = (sample.id, text)
        if key not in known:
            kind = tasks.get(task).answer
            known[key] = answers.grade(kind, text, sample.gold, grading, sample.question)
        return known[key]

    return mark


def _facts(run: Evaluation, grading: str) -> dict[str, str]:
    plan = run.manifest
    count = sum(len(some) for some in run.records.values())
    planned = sum(c.count(plan.counts[c.task], len(plan.seeds)) for c in plan.conditions)
    main = {c.label: c for c in plan.conditions if c.main}
    shared = _shared([c.settings.to_json() for c in main.values()])
    return {
        "Model": f"{plan.model} (weights {plan.fingerprint})",
        "Problems": "; ".join(
            f"{title_of(task)}: {plan.counts[task]} ({plan.origins[task]})" for task in run.tasks
        ),
        "Prompts": f"style {plan.prompt_style}, split {plan.split}",
        "Grading": grading,
        "Settings of all methods": _values(shared),
        **{f"Settings of {label}": _own(c, shared) for label, c in main.items()},
        "Seeds": ", ".join(map(str, plan.seeds)),
        "Records": _progress(count, len(run.failures), planned),
        "Versions": ", ".join(f"{name} {value}" for name, value in plan.versions.items()),
        "Machine": ", ".join(f"{name} {value}" for name, value in plan.machine.items()),
    }


def _progress(count: int, failed: int, planned: int) -> str:
    text = f"{count} of {planned}" + (f", {failed} failed" if failed else "")
    return text if count + failed == planned else f"{text} (the run is unfinished)"


def _shared(many: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all methods have in common."""
    first = many[0] if many else {}
    return {k: v for k, v in first.items() if all(one.get(k) == v for one in many)}


def _own(condition: Condition, shared: Mapping[str, Any]) -> str:
    values = condition.settings.to_json()
    return _values({k: v for k, v in values.items() if k not in shared and k != "method"}) or "–"


def _values(values: Mapping[str, Any]) -> str:
    """Settings in words, without the seed and what is left to the method."""
    known = {k: v for k, v in values.items() if v is not None and k != "seed"}
    return ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items())


def markdown(
    title: str,
    verdict: Sequence[str],
    facts: dict[str, str],
    grids: Sequence[Grid],
    drawn: dict[str, str],
) -> str:
    """The report's text form; figures are linked as PNG."""
    parts = [f"# {title}", *verdict]
    parts += [markdown_table(grid) for grid in grids if not grid.late]
    for key in drawn:
        name, caption = CAPTIONS[key]
        parts.append(f"## {name}\n\n![{name}](figures/{key}.png)\n\n{caption}")
    parts += [markdown_table(grid) for grid in grids if grid.late]
    parts.append("## Settings\n\n" + "\n".join(f"- **{k}**: {v}" for k, v in facts.items()))
    return "\n\n".join(parts) + "\n"


def markdown_table(grid: Grid, bold: Callable[[str], str] = lambda text: f"**{text}**") -> str:
    """One table with its title and note."""

    def cell(text: str) -> str:
        safe = text.replace("|", "\\|")
        return bold(safe[1:]) if safe.startswith("*") else safe

    lines = [
        f"| {' | '.join(grid.columns)} |",
        f"|{'|'.join('---' for _ in grid.columns)}|",
        *(f"| {' | '.join(cell(text) for text in row)} |" for row in grid.rows),
    ]
    note = f"\n\n{grid.note}" if grid.note else ""
    return f"## {grid.title}\n\n" + "\n".join(lines) + note


def write_results(folder: Path, path: Path, command: Sequence[str]) -> None:
    """The tables of a run as a documentation page, with the command that made it."""
    run = summary.read(folder)
    facts, against = _facts(run, "fixed"), comparisons.reference_of(run)
    grids = _tables(run, against, probability.sureness(run))
    parts = [
        f"# Results on {run.manifest.model}",
        "Tables and text were made by one command:",
        f"```\ns3dlm {shlex.join(command)}\n```",
        *_reduced(run),
        "Temperature and λ of each method were chosen on the validation split "
        "([how](protocols.md#tuning)) and are listed at the end.",
        *comparisons.verdict(run, against),
        *in_fit.warnings(in_fit.in_fit(run)),
        *_pictures(folder, path),
        *(markdown_table(grid) for grid in grids),
        "## Settings\n\n" + "\n".join(f"- **{k}**: {v}" for k, v in facts.items()),
    ]
    write_atomic(path, "\n\n".join(parts) + "\n")


def _pictures(folder: Path, path: Path) -> list[str]:
    """The figures of the run's report, copied beside the page that shows them."""
    shown = []
    for key, (name, caption) in CAPTIONS.items():
        drawn = folder / "figures" / f"{key}.png"
        if drawn.is_file():
            own = path.parent / "images" / f"{path.stem}-{key}.png"
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(drawn, own)
            shown.append(f"## {name}\n\n![{name}](images/{own.name})\n\n{caption}")
    return shown


def _reduced(run: Evaluation) -> list[str]:
    """A warning for a run that is smaller than the project's own comparison."""
    fewest, seeds = min(run.manifest.counts.values()), len(run.manifest.seeds)
    if fewest >= FULL_PROBLEMS and seeds >= FULL_SEEDS:
        return []
    return [
        f"**A reduced run**: {fewest} problems per task and {seeds} seed(s) instead of "
        f"{FULL_PROBLEMS} and {FULL_SEEDS}. Its intervals are too wide to rank methods. For the full "
        "comparison, run the command without `--limit`, `--seeds` and `--sweep-problems`."
    ]
