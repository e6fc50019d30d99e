"""The tables of a report as plain text cells, rendered as Markdown, HTML and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from s3dlm import tasks as benchmarks
from s3dlm.evaluation import paper, series
from s3dlm.evaluation.plan import ABLATION, ONE_SEED
from s3dlm.evaluation.statistics import Interval
from s3dlm.evaluation.summary import Cell, Evaluation, cells, mean_accuracy, mean_nfe

MAIN = ("greedy", "baseline", "best_of_k", "s3")  # Table 1; greedy is ours
LISTED = 100  # failed samples in a report
MOST_WITH_INTERVAL = 3  # tasks beside which an interval still fits 80 columns


@dataclass(frozen=True, slots=True)
class Grid:
    """A titled table; a cell that begins with `*` is emphasised."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    late: bool = False  # printed after the figures


def title_of(task: str) -> str:
    """A task's name in tables; accuracy on code is called pass@1 everywhere, so here, too."""
    found = benchmarks.get(task)
    return f"{found.title or task} (pass@1)" if found.answer == "code" else found.title or task


def percent(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.value:.1f} [{low:.1f}, {high:.1f}]"


def number(value: float, digits: int = 1) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _main_cells(run: Evaluation) -> dict[str, dict[str, Cell]]:
    """Cells of the main comparison by task and label."""
    every = cells(run)
    return {
        task: {label: every[c] for label, c in run.main(task).items() if c in every}
        for task in run.tasks
    }


def _best_marked(
    row: Mapping[str, Cell], labels: Sequence[str], write: Callable[[Interval], str] = percent
) -> list[str]:
    """Accuracies with the highest emphasised."""
    values = {row[label].accuracy.value for label in labels if label in row}
    top = max(values) if len(values) > 1 else math.nan
    marked = []
    for label in labels:
        text = write(row[label].accuracy) if label in row else "–"
        best = label in row and row[label].accuracy.value == top
        marked.append(f"*{text}" if best else text)
    return marked


def accuracy(run: Evaluation) -> Grid:
    """Table 1: accuracy of the main methods."""
    labels = run.labels()
    if set(MAIN) <= set(labels) <= {*MAIN, *ABLATION, *ONE_SEED}:
        labels = list(MAIN)  # Table 2 has the others
    rows = []
    for task, row in _main_cells(run).items():
        counts = [cell.problems for cell in row.values()] or [0]
        asked = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
        rows.append((title_of(task), asked, *_best_marked(row, labels)))
    note = (
        "Accuracy in per cent, the mean over seeds, with Wilson's 95 % interval over problems. "
        "The highest of a row is emphasised. greedy is the baseline at temperature 0."
    )
    return Grid("accuracy", "Accuracy (Table 1)", ("Task", "Problems", *labels), tuple(rows), note)


def ablation(run: Evaluation) -> Grid:
    """Table 2: which part of the method does what."""
    found = _main_cells(run)
    labels = run.labels()
    marked = {
        task: dict(zip(labels, _best_marked(row, labels), strict=True))
        for task, row in found.items()
    }
    rows = []
    for label in labels:
        settings = next(c.settings for c in run.manifest.conditions if c.label == label)
        ahead = "✓" if settings.row.scored == "every step" else "×"
        tilt = "✓" if settings.row.weight in ("tilt", "twist") and settings.lam > 0 else "×"
        rows.append((label, ahead, tilt, *(marked[task][label] for task in found)))
    columns = ("Method", "Look-ahead", "Tilting", *(title_of(task) for task in found))
    note = "Look-ahead: scored at every step. Tilting: resampled or chosen by exp(λ·score)."
    return Grid("ablation", "Ablation (Table 2)", columns, tuple(rows), note)


def brief(run: Evaluation) -> Grid:
    """Accuracy of every method on every task, narrow enough for a terminal."""
    found, labels = _main_cells(run), run.labels()
    several = len(found) > 1
    write = _plain if several else _short
    columns = [_best_marked(row, labels, write) for row in found.values()]
    names = [title_of(task) for task in found]
    if several:
        wide = len(found) <= MOST_WITH_INTERVAL
        mean = _short if wide else _plain
        whole = {label for label in labels if all(label in row for row in found.values())}
        columns.append([mean(mean_accuracy(run, one)) if one in whole else "–" for one in labels])
        names.append("Mean [95 %]" if wide else "Mean")
    columns.append([number(mean_nfe(run, label)) for label in labels])
    names.append("NFE")
    title = "Accuracy in per cent" if several else "Accuracy in per cent [95 % interval]"
    return Grid("brief", title, ("Method", *names), tuple(zip(labels, *columns, strict=True)))


def _plain(interval: Interval) -> str:
    return number(100 * interval.value)


def _short(interval: Interval) -> str:
    low, high = number(100 * interval.low, 0), number(100 * interval.high, 0)
    return f"{_plain(interval)} [{low}, {high}]"


def cost(run: Evaluation) -> Grid:
    """Table 3: tokens and latency."""
    rows = [
        (
            title_of(task),
            label,
            number(cell.tokens),
            number(cell.answer_tokens),
            str(cell.timed),
            number(cell.latency, 1),
            number(cell.wall, 1),
            number(cell.seconds, 3),
        )
        for task, row in _main_cells(run).items()
        for label, cell in row.items()
    ]
    columns = ("Task", "Method", "Output tokens", "Answer tokens", "Timed")
    note = (
        f"Tokens counted by {run.manifest.token_counter}; the paper's “effective tokens” (3 to 6) "
        "are those of the extracted answer. Total latency is the wall-clock time of the timed "
        "samples without loading the model; with a row cache only the first samples are timed. The "
        "paper's wall time is the mean of the times at which samples finish, about half of it. "
        "Conditions ran one after another, batched."
    )
    full = (*columns, "Total latency (s)", "Wall time (s)", "s per sample")
    return Grid("cost", "Latency and tokens (Table 3)", full, tuple(rows), note, late=True)


def search_figures(run: Evaluation) -> Grid:
    """What the search did: NFE, effective sample size, confidence."""
    rows = [
        (
            title_of(task),
            label,
            number(cell.nfe),
            number(cell.nfe_logical, 0),
            f"{100 * cell.deduplicated:.0f} %",
            number(cell.ess, 2),
            number(cell.distinct, 1),
            number(cell.confidence, 3),
            f"{100 * cell.unanswered:.1f} %",
        )
        for task, row in _main_cells(run).items()
        for label, cell in row.items()
    ]
    columns = ("Task", "Method", "NFE", "NFE by Algorithm 1", "Saved", "ESS share")
    note = (
        "NFE: forward passes of one canvas per problem. Equal children are evaluated once and "
        "finished texts not at all, which saves the rest. ESS share: effective sample size of a "
        "step's weights divided by the number of children. Distinct texts: among the survivors, on average. "
        "Unanswered: no answer was found."
    )
    full = (*columns, "Distinct texts", "Mean confidence", "Unanswered")
    return Grid("search", "What the search did", full, tuple(rows), note, late=True)


def sweep(run: Evaluation, label: str = "s3") -> Grid | None:
    """Accuracy over particles and branching, if a run has swept them."""
    found: dict[tuple[int, int], dict[str, str]] = {}
    for row in series.accuracy_nfe(run).where(label=label):
        point = (int(str(row["particles"])), int(str(row["branching"])))
        value, low, high = (float(str(row[name])) for name in ("accuracy", "low", "high"))
        text = f"{percent(Interval(value, low, high))} @ {float(str(row['nfe'])):.0f}"
        found.setdefault(point, {})[str(row["task"])] = text
    if len(found) < 2:
        return None
    rows = tuple(
        (str(n), str(b), *(found[n, b].get(task, "–") for task in run.tasks))
        for n, b in sorted(found)
    )
    columns = ("N", "b", *(title_of(task) for task in run.tasks))
    note = "Accuracy [95 %] @ NFE, on the problems and seeds that all points of the sweep share."
    title = f"{label} over particles N and branching b"
    return Grid("sweep", title, columns, rows, note, late=True)


def distinct_texts(run: Evaluation) -> Grid:
    """How many different texts a vote over K samples really has."""
    found: dict[int, dict[str, str]] = {}
    for row in series.accuracy_nfe(run).where(label="best_of_k"):
        count = int(str(row["particles"])) * int(str(row["branching"]))
        found.setdefault(count, {})[str(row["task"])] = number(float(str(row["distinct"])))
    rows = tuple((str(k), *(found[k].get(task, "–") for task in run.tasks)) for k in sorted(found))
    note = "Mean number over problems. A sharp model writes the same text again and again."
    columns = ("K", *(title_of(task) for task in run.tasks))
    title = "Distinct texts among the K samples of best_of_k"
    return Grid("distinct", title, columns, rows if len(rows) > 1 else (), note, late=True)


def block_cost(run: Evaluation) -> Grid:
    """Table 4: tokens and latency by block length; the paper's beside ours in the paper's setting."""
    points = series.block_cells(run)
    whole = [c for c in run.manifest.conditions if c.label == "s3" and c.main]
    same = bool(whole) and all(paper.same_setting(run.manifest.model, c.settings) for c in whole)
    rows = []
    for condition, cell in points:
        length, label = condition.settings.block_length, condition.label
        ours = (number(cell.answer_tokens), number(cell.latency, 1), number(cell.wall, 1))
        printed = paper.BLOCK_COST.get(condition.task, {}).get(length, {}).get(label)
        beside = tuple(number(v, 2) for v in printed) if printed else ("–", "–", "–")
        where = (title_of(condition.task), str(length), label, percent(cell.accuracy))
        rows.append((*where, *ours, str(cell.timed), *(beside if same else ())))
    columns = ("Task", "Block length", "Method", "Accuracy [95 %]", "Answer tokens")
    full = (*columns, "Total latency (s)", "Wall time (s)", "Timed")
    theirs = ("Tokens, paper", "Latency (s), paper", "Wall time (s), paper") if same else ()
    note = (
        "As Table 3, for every block length of the run, on the problems that all of them share. Total "
        "latency is that of the timed samples."
    )
    return Grid("block_cost", "Tokens and latency by block length (Table 4)", (*full, *theirs),
                tuple(rows), note, late=True)  # fmt: skip


def beside_paper(run: Evaluation) -> list[Grid]:
    """The paper's Tables 1 to 3 beside ours; nothing unless model and settings are the paper's."""
    s3 = [c for c in run.manifest.conditions if c.label == "s3" and c.main]
    if not s3 or not all(paper.same_setting(run.manifest.model, c.settings) for c in s3):
        return []
    found, cost_rows = [], []
    for task, row in _main_cells(run).items():
        for label, printed in paper.ACCURACY.get(task, {}).items():
            if label not in row:
                continue
            cell, ours = row[label], row[label].accuracy
            inside = "yes" if 100 * ours.low <= printed <= 100 * ours.high else "no"
            found.append((title_of(task), label, f"{printed:.2f}", percent(ours), inside))
            figures = zip(
                paper.COST[task][label], (cell.answer_tokens, cell.latency, cell.wall), strict=True
            )
            cost_rows.append((title_of(task), label, *(number(v, 2) for p in figures for v in p)))
    columns = ("Task", "Method", "Paper", "Ours [95 %]", "Paper inside our interval")
    pairs = [f"{name}, {whose}" for name in ("Tokens", "Latency (s)", "Wall time (s)")
             for whose in ("paper", "ours")]  # fmt: skip
    return [
        Grid("paper", "The paper's accuracy beside ours", columns, tuple(found)),
        Grid("paper_cost", "The paper's Table 3 beside ours", ("Task", "Method", *pairs),
             tuple(cost_rows), late=True),
    ]  # fmt: skip


def failures(run: Evaluation) -> Grid:
    """The samples that failed, with their reasons."""
    labels = {c.spec: (title_of(c.task), c.label) for c in run.manifest.conditions}
    rows = tuple(
        (*labels[one.spec], one.sample, str(one.seed), f"{one.error}: {one.reason}")
        for one in run.failures[:LISTED]
    )
    more = len(run.failures) - len(rows)
    note = "Failed samples count in no table. `s3dlm eval … --retry-failed` runs them again."
    note += f" {more} more are not listed." if more else ""
    columns = ("Task", "Method", "Sample", "Seed", "Reason")
    return Grid("failures", f"Failed samples: {len(run.failures)}", columns, rows, note, late=True)


def all_tables(run: Evaluation, compared: Grid) -> list[Grid]:
    """The tables of accuracy and cost that the run has data for; `compared` is of comparisons.py."""
    swept = sweep(run)
    found = [
        accuracy(run),
        compared,
        ablation(run),
        *beside_paper(run),
        cost(run),
        block_cost(run),
        search_figures(run),
        *([swept] if swept else []),
        distinct_texts(run),
    ]
    return [grid for grid in found if grid.rows]
