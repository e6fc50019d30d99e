"""The frontier as one Markdown page with its figures; a page of the docs can take it in as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.frontier import lengths, tables
from benchmarks.frontier.pictures import PICTURES
from benchmarks.frontier.tables import Frontier
from s3dlm.errors import MissingExtraError, RecordError
from s3dlm.evaluation import figures
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.report import markdown_table
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.tables import Grid, title_of

FILE = "frontier.md"
BEGIN, END = "<!-- frontier: begin -->", "<!-- frontier: end -->"


@dataclass(frozen=True, slots=True)
class Page:
    """What was written, and its tables."""

    path: Path
    grids: Sequence[Grid]
    notes: Sequence[str]


def write(frontier: Frontier, folder: Path, command: str, into: Path | None) -> Page:
    """Write frontier.md and figures to the run's folder, and into a page of the docs if one is given."""
    if not frontier.tasks:
        raise RecordError(
            f"{folder} has no task on which every entry has records; run the same command again "
            "until it is finished"
        )
    table, by_n = tables.series(frontier), lengths.series(frontier)
    grids = _tables(frontier, table, by_n)
    drawn, notes = _draw(table, by_n, folder / "figures")
    write_atomic(folder / FILE, _text(frontier, grids, drawn, "figures", command))
    if into is not None:
        _draw(table, by_n, into.parent / "images")
        _insert(into, _text(frontier, grids, drawn, "images", command))
    return Page(folder / FILE, grids, notes)


def _tables(frontier: Frontier, table: Table, by_n: Table) -> list[Grid]:
    """Every table that the run has data for, in reading order."""
    found = [
        tables.curves(table),
        tables.against_controls(frontier),
        tables.leave_one_out(frontier),
        tables.others(frontier),
        tables.per_task(table),
        lengths.by_length(by_n),
        lengths.to_reach(frontier),
        tables.cost(frontier),
    ]
    return [grid for grid in found if grid.rows]


def _draw(table: Table, by_n: Table, folder: Path) -> tuple[list[str], list[str]]:
    """The figures that were drawn; without matplotlib none, and a note."""
    data = {"frontier": table, "frontier_tasks": table, "frontier_length": by_n}
    try:
        drawn = [
            name
            for name, (painter, _) in PICTURES.items()
            if figures.draw(replace(data[name], name=name), {}, folder, painter)
        ]
    except MissingExtraError as error:
        return [], [f"no figures: {error}"]
    return drawn, []


def _text(
    frontier: Frontier,
    grids: Sequence[Grid],
    drawn: Sequence[str],
    where: str,
    command: str,
) -> str:
    plan = frontier.run.manifest
    counts = ", ".join(f"{title_of(task)} {plan.counts[task]}" for task in frontier.tasks)
    parts = [
        f"Made by `{command}` on {plan.model} (weights {plan.fingerprint}), split "
        f"{plan.split}, seeds {', '.join(map(str, plan.seeds))}; problems: {counts}. Some entries use "
        f"fewer of them; the last table has the number of samples of each. {_tuning(frontier)} "
        "The verifier checks Countdown and Sudoku exactly, so accuracy there is coverage.",
        *(
            f"![{name.replace('_', ', by ')}]({where}/{name}.png)\n\n{PICTURES[name][1]}"
            for name in drawn
        ),
        *(markdown_table(grid) for grid in grids),
    ]
    return "\n\n".join(parts) + "\n"


def _tuning(frontier: Frontier) -> str:
    """Whose temperature and λ were chosen on validation, and whose were not."""
    known = frontier.chosen or {}
    left_out = [name for name in frontier.curves if frontier.entry(name).tuned_as not in known]
    if len(left_out) == len(frontier.curves):
        return "Temperature and λ are the model's recommendations; nothing was tuned for this run."
    said = (
        "Temperature and λ were chosen on the validation split, for every entry from the same grid."
    )
    names = ", ".join(f"`{name}`" for name in left_out)
    return f"{said} Not tuned, with the model's recommendations: {names}." if left_out else said


def _insert(path: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    page = path.read_text(encoding="utf-8") if path.is_file() else f"{BEGIN}\n{END}\n"
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RecordError(
            f"{path} needs a line {BEGIN} and a line {END}; the tables go between them"
        )
    write_atomic(path, f"{before}{BEGIN}\n\n{text}\n{END}{after}")
