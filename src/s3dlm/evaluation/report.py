"""A finished (or half-finished) run as Markdown and as one HTML page, from its records alone."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm import answers, tasks, verifier
from s3dlm.errors import MissingExtraError
from s3dlm.evaluation import figures, page, series, summary, tables
from s3dlm.evaluation.records import Candidate, write_atomic
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, title_of
from s3dlm.tasks import Sample

FULL_PROBLEMS, FULL_SEEDS = 500, 3  # what the project's own comparison asks

CAPTIONS: dict[str, tuple[str, str]] = {
    "accuracy_nfe": (
        "Accuracy against compute",
        "Accuracy with 95 % intervals over NFE, the rows really forwarded for one problem, for "
        "every (N, b) of the run, on the problems that all of them were asked. N grows along a line.",
    ),
    "confidence": (
        "Confidence over denoising",
        "Mean probability of the answer's tokens at every step: those revealed at the step that "
        "revealed them, those still masked in the open block by their best token.",
    ),
    "block_length": (
        "Accuracy over block length",
        "Accuracy with 95 % intervals at the main budget for every block length of the run.",
    ),
    "score_density": (
        "Verifier scores along the search",
        "Kernel density of the children's scores at five moments of the search; dashed: finished "
        "direct samples (best_of_k), which nothing steered.",
    ),
    "score_heat": (
        "Verifier scores at every step",
        "Share of s3's children in each band of verifier scores, step by step.",
    ),
    "density_quality": (
        "Density and quality",
        "Direct samples ordered by the model's own log-density. Top: where the model puts its "
        "mass. Middle: what the verifier thinks of samples there, and how many are right. Bottom: "
        "the target tilted by exp(λ·score) within each problem, against the base (dashed).",
    ),
    "best_of_k_bound": (
        "Best of K against its bound",
        "Mean over problems of the best verifier score among K direct samples, and of the bound "
        "mean + σ·√(2 ln K) with each problem's own mean and σ.",
    ),
}


@dataclass(frozen=True, slots=True)
class Report:
    """Where a report lies and what it says first."""

    markdown: Path
    html: Path
    verdict: Sequence[str]
    grids: Sequence[Grid]
    short: Sequence[Grid]  # what fits a terminal
    notes: Sequence[str]


def write(
    folder: Path,
    *,
    grading: str | None = None,
    out: Path | None = None,
    show: Callable[[Path], str] | None = None,
) -> Report:
    """Read a run, mark it anew if asked, and write report.md, report.html and figures/.

    `show` makes a page of a trace; with it, the problem browser leads to pages to look at.
    """
    run = summary.read(folder, summary.regrade(grading) if grading else None)
    target = out or folder
    for trace in sorted((folder / "traces").glob("*.jsonl")) if show else ():
        shown = trace.with_suffix(".html")
        if show is not None and not shown.exists():
            write_atomic(shown, show(trace))
    drawn, notes = _draw(run, target / "figures", grading or "fixed")
    grids = tables.all_tables(run)
    verdict = tables.verdict(run) or ["No two methods to compare in this run."]
    facts = _facts(run, grading or "fixed")
    title = f"s3dlm: {run.manifest.model} on {', '.join(title_of(task) for task in run.tasks)}"
    text = markdown(title, verdict, facts, grids, drawn)
    write_atomic(target / "report.md", text)
    pictures = [(key, *CAPTIONS[key], svg) for key, svg in drawn.items()]
    html = page.render(run, title, verdict, facts, grids, pictures)
    write_atomic(target / "report.html", html)
    short = [grid for grid in (tables.brief(run), tables.duels(run)) if grid.rows]
    return Report(target / "report.md", target / "report.html", verdict, grids, short, notes)


def _draw(run: Evaluation, folder: Path, grading: str) -> tuple[dict[str, str], list[str]]:
    """Figures that the run has data for, as SVG by name; without matplotlib none, and a note."""
    score, mark = scorer(run), marker(grading)
    samples = {task: series.direct(run, task, score, mark) for task in run.tasks}
    every: list[Table] = [
        series.accuracy_nfe(run),
        series.confidence(run),
        series.block_length(run),
        series.score_density(run, samples),
        series.score_heat(run),
        series.density_quality(run, samples),
        series.bound(run, samples),
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
    """The verifier's score of a recorded text; recorded scores are taken as they are."""

    @functools.cache
    def of_task(task: str) -> verifier.Verifier:
        return verifier.for_task(tasks.get(task).profile, run.base.profile or "paper")

    def score(task: str, question: str, one: Candidate) -> float:
        if one.score is not None:
            return one.score
        return float(of_task(task).score(question, one.text, one.confidence).total)

    return score


def marker(grading: str) -> series.Mark:
    """Grades of texts, each text of a problem once."""
    known: dict[tuple[str, str], float] = {}

    def mark(task: str, sample: Sample, text: str) -> float:
        key = (sample.id, text)
        if key not in known:
            kind = tasks.get(task).answer
            known[key] = answers.grade(kind, text, sample.gold, grading, sample.question)
        return known[key]

    return mark


def _facts(run: Evaluation, grading: str) -> dict[str, str]:
    plan, base = run.manifest, run.base
    count = sum(len(some) for some in run.records.values())
    asked = sum(c.count(plan.counts[c.task], len(plan.seeds)) for c in plan.conditions)
    return {
        "Model": f"{plan.model} (weights {plan.fingerprint})",
        "Problems": "; ".join(
            f"{title_of(task)}: {plan.counts[task]} ({plan.origins[task]})" for task in run.tasks
        ),
        "Prompts": f"preset {plan.preset}, split {plan.split}",
        "Grading": f"preset {grading}",
        "Decoding": f"gen_length {base.gen_length}, steps {base.steps}, block_length "
        f"{base.block_length}, temperature {base.temperature:g}, policy {base.policy}",
        "Search": f"N = {base.particles}, b = {base.branching}, λ = {base.lam:g}, "
        f"verifier profile {base.profile or 'paper'}",
        "Tuned": "; ".join(
            f"{label}: " + ", ".join(f"{k} {v:g}" for k, v in own.items())
            for label, own in plan.tuned.items()
        )
        or "nothing: every method has the same temperature",
        "Seeds": ", ".join(map(str, plan.seeds)),
        "Records": f"{count} of {asked}" + ("" if count == asked else " (the run is unfinished)"),
        "Versions": ", ".join(f"{name} {value}" for name, value in plan.versions.items()),
        "Machine": ", ".join(f"{name} {value}" for name, value in plan.machine.items()),
    }


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
    parts.append("## Setting\n\n" + "\n".join(f"- **{k}**: {v}" for k, v in facts.items()))
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
    """The tables of a run as a page of the project's documentation, with the command that made it."""
    run = summary.read(folder)
    facts = _facts(run, "fixed")
    parts = [
        f"# Results on {run.manifest.model}",
        "Made, tables and text alike, by one command:",
        f"```\ns3dlm {shlex.join(command)}\n```",
        *_reduced(run),
        "Temperature and λ were chosen before, on the validation split alone "
        "([how](protocols.md#tuning)); what each method got stands at the end.",
        *tables.verdict(run),
        *(markdown_table(grid) for grid in tables.all_tables(run)),
        "## Setting\n\n" + "\n".join(f"- **{k}**: {v}" for k, v in facts.items()),
    ]
    write_atomic(path, "\n\n".join(parts) + "\n")


def _reduced(run: Evaluation) -> list[str]:
    """What a reader must know of a run that is smaller than the comparison we aim at."""
    fewest, seeds = min(run.manifest.counts.values()), len(run.manifest.seeds)
    if fewest >= FULL_PROBLEMS and seeds >= FULL_SEEDS:
        return []
    return [
        f"**A reduced run**: {fewest} problems a task and {seeds} seed(s) instead of "
        f"{FULL_PROBLEMS} and {FULL_SEEDS}. It shows that the machinery works; its intervals are "
        "too wide to rank methods. The full comparison is the same command without `--limit`, "
        "`--seeds` and `--sweep-problems`."
    ]
