"""The tables of a report: rows of text with a title, shown as Markdown, HTML, JSON, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from s3dlm.evaluation import series
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import ABLATION, title_of
from s3dlm.evaluation.reproduction import ONE_SEED
from s3dlm.evaluation.statistics import Cell, Interval

MAIN = ("greedy", "baseline", "best_of_k", "s3")  # Table 1; greedy is ours
LISTED = 100  # failed samples in a report
MOST_WITH_INTERVAL = 3  # tasks beside which an interval still fits 80 columns
LEVEL = 0.05  # of significance


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; a cell that begins with `*` is emphasised."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    late: bool = False  # shown after the figures

    @classmethod
    def of(
        cls, key: str, title: str, frame: pd.DataFrame, note: str = "", late: bool = False
    ) -> Table:
        rows = list(frame.itertuples(index=False, name=None))
        return cls(key, title, tuple(frame), rows, note, late)

    @property
    def named(self) -> list[bool]:
        """Which columns hold names: they are aligned left, columns of numbers right."""
        return [all(c[:1].isalpha() for c in column) for column in zip(*self.rows, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "note": self.note}

    def to_markdown(self) -> str:
        """Title, table and note."""

        def line(cells: Sequence[str]) -> str:
            safe = [cell.replace("|", "\\|") for cell in cells]
            return f"| {' | '.join(f'**{c[1:]}**' if c[:1] == '*' else c for c in safe)} |"

        head = [line(self.columns), f"|{'|'.join('---' for _ in self.columns)}|"]
        note = f"\n\n{self.note}" if self.note else ""
        return f"## {self.title}\n\n" + "\n".join([*head, *map(line, self.rows)]) + note


def percent(interval: Interval, digits: int = 1) -> str:
    """An accuracy with its bounds, which have so many digits."""
    if math.isnan(interval.value):
        return "–"
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.value:.1f} [{low:.{digits}f}, {high:.{digits}f}]"


def number(value: float, digits: int = 1) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def points(difference: Interval, p: float) -> str:
    """A difference of accuracies in points with its interval, emphasised if it is significant."""
    low, high = 100 * difference.low, 100 * difference.high
    text = f"{100 * difference.value:+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"*{text}" if p < LEVEL else text


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _best_marked(
    row: Mapping[str, Cell], labels: Sequence[str], write: Callable[[Interval], str] = percent
) -> list[str]:
    """Accuracies with the highest emphasised."""
    accuracies = {label: row[label].accuracy for label in labels if label in row}
    values = {accuracy.value for accuracy in accuracies.values()}
    top = max(values) if len(values) > 1 else math.nan
    texts = {label: "*" * (a.value == top) + write(a) for label, a in accuracies.items()}
    return [texts.get(label, "–") for label in labels]


def accuracy(run: Run) -> Table:
    """Table 1: accuracy of the main methods."""
    labels = run.labels()
    if set(MAIN) <= set(labels) <= {*MAIN, *ABLATION, *ONE_SEED}:
        labels = list(MAIN)  # Table 2 has the others
    rows = []
    for task, row in run.main_cells().items():
        counts = sorted({cell.problems for cell in row.values()} or {0})
        asked = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        rows.append((title_of(task), asked, *_best_marked(row, labels)))
    note = (
        "Accuracy in per cent, the mean over seeds, with Wilson's 95 % interval over problems. "
        "The highest of a row is emphasised. greedy is the baseline at temperature 0."
    )
    return Table("accuracy", "Accuracy (Table 1)", ("Task", "Problems", *labels), rows, note)


def ablation(run: Run) -> Table:
    """Table 2: which part of the method does what."""
    labels = run.labels()
    by_label = {c.label: c.settings for c in reversed(run.manifest.conditions)}
    settings = [by_label[label] for label in labels]
    tilts = [each.row.weight in ("tilt", "twist") and each.lam > 0 for each in settings]
    columns = {
        "Method": labels,
        "Problems × seeds": [_asked(run, label) for label in labels],
        "Look-ahead": ["✓" if each.row.scored == "every step" else "×" for each in settings],
        "Tilting": ["✓" if tilt else "×" for tilt in tilts],
        **{title_of(task): _best_marked(row, labels) for task, row in run.main_cells().items()},
    }
    note = "Look-ahead: scored at every step. Tilting: resampled or chosen by exp(λ·score)."
    return Table.of("ablation", "Ablation (Table 2)", pd.DataFrame(columns), note)


def _asked(run: Run, label: str) -> str:
    """How many problems of a task a method was given, with how many seeds."""
    cells = [row[label] for row in run.main_cells().values() if label in row]
    counts = sorted({(cell.problems, cell.seeds) for cell in cells})
    return ", ".join(f"{problems} × {seeds}" for problems, seeds in counts) or "–"


def brief(run: Run) -> Table:
    """Accuracy of every method on every task, narrow enough for a terminal."""
    cells, labels = run.main_cells(), run.labels()
    several, wide = len(cells) > 1, len(cells) <= MOST_WITH_INTERVAL

    def write(interval: Interval, bounds: bool = not several) -> str:
        return percent(interval, 0) if bounds else number(100 * interval.value)

    columns = {title_of(task): _best_marked(row, labels, write) for task, row in cells.items()}
    if several:
        on_all = [label for label in labels if all(label in row for row in cells.values())]
        means = {label: write(run.mean_accuracy(label), wide) for label in on_all}
        columns["Mean [95 %]" if wide else "Mean"] = [means.get(label, "–") for label in labels]
    title = "Accuracy in per cent" + ("" if several else " [95 % interval]")
    nfe = [number(run.mean_nfe(label)) for label in labels]
    return Table.of("brief", title, pd.DataFrame({"Method": labels, **columns, "NFE": nfe}))


def _by_method(
    run: Run, key: str, title: str, columns: Mapping[str, Callable[[Cell], str]], note: str
) -> Table:
    """A row per task and method of the main comparison."""
    rows = [
        (title_of(task), label, *(write(cell) for write in columns.values()))
        for task, row in run.main_cells().items()
        for label, cell in row.items()
    ]
    return Table(key, title, ("Task", "Method", *columns), rows, note, late=True)


def cost(run: Run) -> Table:
    """Table 3: tokens and latency."""
    columns: dict[str, Callable[[Cell], str]] = {
        "Output tokens": lambda cell: number(cell.tokens),
        "Answer tokens": lambda cell: number(cell.answer_tokens),
        "Timed": lambda cell: str(cell.timed),
        "Total latency (s)": lambda cell: number(cell.latency),
        "Wall time (s)": lambda cell: number(cell.wall),
        "s per sample": lambda cell: number(cell.seconds, 3),
    }
    note = (
        f"Tokens counted by {run.manifest.token_counter}; the paper's “effective tokens” (3 to 6) "
        "are those of the extracted answer. Total latency is the wall-clock time of the timed "
        "samples without loading the model; with a row cache only the first samples are timed. The "
        "paper's wall time is the mean of the times at which samples finish: half of the latency in "
        "many equal batches, more in few (0.6 to 0.9 of it for 40 samples). Conditions ran one after "
        "another, batched."
    )
    return _by_method(run, "cost", "Latency and tokens (Table 3)", columns, note)


def _ess(cell: Cell) -> str:
    settings = cell.condition.settings
    tilted = settings.row.weight not in ("none", "rank") and settings.lam > 0
    return number(cell.ess, 2) if tilted else "–"


def search(run: Run) -> Table:
    """What the search did: NFE, effective sample size, confidence."""
    columns: dict[str, Callable[[Cell], str]] = {
        "NFE": lambda cell: number(cell.nfe),
        "NFE by Algorithm 1": lambda cell: number(cell.nfe_logical, 0),
        "Saved": lambda cell: f"{100 * cell.deduplicated:.0f} %",
        "ESS share": _ess,
        "Distinct texts": lambda cell: number(cell.distinct),
        "Mean confidence": lambda cell: number(cell.confidence, 3),
        "Unanswered": lambda cell: f"{100 * cell.unanswered:.1f} %",
    }
    note = (
        "NFE: forward passes of one canvas per problem. Equal children are evaluated once and "
        "finished texts not at all, which saves the rest. ESS share: effective sample size of a "
        "step's weights divided by the number of children, where weights are a tilt by the score (ranks "
        "are no weights). Distinct texts: among the survivors, on "
        "average. Unanswered: no answer was found."
    )
    return _by_method(run, "search", "What the search did", columns, note)


def sweep(run: Run, label: str = "s3") -> Table:
    """Accuracy over particles and branching, if a run has swept them."""
    rows = series.accuracy_nfe(run).query("label == @label")
    text = [
        f"{percent(Interval(row.accuracy, row.low, row.high))} @ {row.nfe:.0f}"
        for row in rows.itertuples()
    ]
    note = "Accuracy [95 %] @ NFE, on the problems and seeds that all points of the sweep share."
    rows = rows.assign(N=rows.particles, b=rows.branching, text=text)
    title = f"{label} over particles N and branching b"
    return _by_task(run, "sweep", title, ["N", "b"], rows, note)


def distinct_texts(run: Run) -> Table:
    """How many different texts a vote over K samples really has."""
    rows = series.accuracy_nfe(run).query("label == 'best_of_k'")
    rows = rows.assign(K=rows.particles * rows.branching, text=rows.distinct.map(number))
    note = "Mean number over problems. A sharp model writes the same text again and again."
    title = "Distinct texts among the K samples of best_of_k"
    return _by_task(run, "distinct", title, ["K"], rows, note)


def _by_task(
    run: Run, key: str, title: str, points: list[str], rows: pd.DataFrame, note: str
) -> Table:
    """A row per point of a sweep, a column of texts per task; no rows if there is only one point."""
    wide = rows.pivot_table(index=points, columns="task", values="text", aggfunc="last")
    wide = wide.reindex(columns=run.tasks).fillna("–").rename(columns=title_of).reset_index()
    return Table.of(key, title, wide.astype(str) if len(wide) > 1 else wide[:0], note, late=True)


def failures(run: Run) -> Table:
    """The samples that failed, with their reasons."""
    labels = {c.spec: (title_of(c.task), c.label) for c in run.manifest.conditions}
    rows = [
        (*labels[f.spec], f.sample, str(f.seed), f"{f.error}: {f.reason}")
        for f in run.failures[:LISTED]
    ]
    more = len(run.failures) - len(rows)
    note = (
        "Failed samples count in no table. `s3dlm eval … --run retry_failed=true` runs them again."
    )
    note += f" {more} more are not listed." if more else ""
    columns = ("Task", "Method", "Sample", "Seed", "Reason")
    return Table("failures", f"Failed samples: {len(run.failures)}", columns, rows, note, late=True)
