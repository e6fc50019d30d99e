"""The tables of a report. A column is one value, `Column`: its title, its text in a row, its tables.

A row is a method on one task or on several, whose mean it is. So every column serves every table: what
is added to COLUMNS stands in the tables that it names. A column that is empty in all rows is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from s3dlm.evaluation import paper
from s3dlm.evaluation.formats import ABSENT, LEVEL, Table, decimal, p_value, percent, points
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.statistics import (
    CalibrationReport,
    Cell,
    Comparison,
    compare,
    mean,
    mean_cell,
)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A method on some tasks."""

    run: RecordedRun
    label: str
    cells: Mapping[str, Cell]  # by task
    reference: str = ""  # the method that it is compared with
    top: Mapping[str, float] | None = None  # the highest accuracy of the table, by task
    trust: CalibrationReport | None = None  # how far its probabilities of being right can be

    @property
    def cell(self) -> Cell:
        return mean_cell(list(self.cells.values()))

    @property
    def task(self) -> str:
        """The only one, or how many there are."""
        several = f"mean of {len(self.cells)} tasks"
        return several if len(self.cells) > 1 else title_of(next(iter(self.cells)))

    @property
    def whole(self) -> bool:
        """Whether it has all tasks: means of different tasks are not compared."""
        return len(self.cells) == len(self.run.tasks)

    @property
    def compared(self) -> Comparison:
        """With the reference, on the problems that both have; on none if it is the reference."""
        if self.reference in ("", self.label):
            return compare([])
        task = None if len(self.cells) > 1 else next(iter(self.cells))
        return self.run.compare(self.label, self.reference, task)

    def printed(self, name: str) -> float:
        """What the paper prints for this method, task and block length; NaN if nothing."""
        if len(self.cells) > 1 or not paper.in_papers_setting(self.run):
            return math.nan
        return paper.printed(self.cell.condition, name)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of some tables."""

    title: str  # {reference} and {mean} are filled in
    text: Callable[[TableRow], str]
    tables: str  # their keys


def _ticked(yes: bool) -> str:
    return "✓" if yes else "×"


def _tilts(cell: Cell) -> bool:
    method = cell.condition.settings.search
    return method.weighs and method.verified != "never"


def _ess(row: TableRow) -> str:
    return decimal(row.cell.ess, 2) if row.cell.condition.settings.search.weighs else ABSENT


def _report(
    write: Callable[[CalibrationReport], float], digits: int = 1
) -> Callable[[TableRow], str]:
    """A figure of how far probabilities can be trusted."""
    return lambda row: ABSENT if row.trust is None else decimal(write(row.trust), digits)


def _surest(share: str) -> Callable[[TableRow], str]:
    return _report(lambda found: 100 * found.coverage[share])


def _accuracy(task: str, bounds: bool) -> Callable[[TableRow], str]:
    """The accuracy on one task; the highest of the table is emphasised."""

    def text(row: TableRow) -> str:
        if task not in row.cells:
            return ABSENT
        value = row.cells[task].accuracy
        mark = "*" if row.top and row.top[task] == value.value else ""
        return mark + (percent(value) if bounds else decimal(100 * value.value))

    return text


TASK_COLUMNS = Column(
    "", lambda r: "", "summary short accuracy sweep"
)  # stands for the accuracy on every task
COLUMNS = (
    Column("Task", lambda r: r.task, "cost paper probability"),
    Column("Method", lambda r: r.label, "summary short gains accuracy comparisons cost sweep paper probability"),
    Column("Compared with", lambda r: r.reference, "comparisons"),
    Column("On", lambda r: r.task, "comparisons"),
    Column("Look-ahead", lambda r: _ticked(r.cell.condition.settings.search.verified == "every step"), "accuracy"),
    Column("Tilting", lambda r: _ticked(_tilts(r.cell)), "accuracy"),
    Column("N", lambda r: str(r.cell.condition.budget[0]), "sweep"),
    Column("b", lambda r: str(r.cell.condition.budget[1]), "sweep"),
    Column("Block length", lambda r: str(r.cell.condition.settings.decoding.block_length), "cost"),
    Column("Problems × seeds", lambda r: f"{r.cell.problems} × {r.cell.seeds}", "accuracy cost sweep paper"),
    TASK_COLUMNS,
    Column("{mean} [95 %]", lambda r: percent(r.cell.accuracy) if r.whole else ABSENT, "summary sweep"),
    Column("{mean}", lambda r: decimal(100 * r.cell.accuracy.value) if r.whole else ABSENT, "short"),
    Column("Points vs {reference}", lambda r: points(r.compared.difference, r.compared.p), "summary gains"),
    Column("Points", lambda r: points(r.compared.difference, r.compared.p), "comparisons"),
    Column("Better : worse", lambda r: f"{r.compared.wins} : {r.compared.losses}", "comparisons"),
    Column("Problems", lambda r: str(r.compared.problems), "comparisons"),
    Column("p", lambda r: p_value(r.compared.p), "summary gains comparisons"),
    Column("Passes", lambda r: decimal(r.cell.nfe), "summary gains cost sweep"),
    Column("Passes without sharing", lambda r: decimal(r.cell.nfe_logical), "summary gains cost sweep"),
    Column("Failed", lambda r: str(r.cell.failed) if r.run.failures else ABSENT, "summary"),
    Column("ESS share", _ess, "cost"),
    Column("Distinct texts", lambda r: decimal(r.cell.distinct), "cost sweep"),
    Column("No answer (%)", lambda r: decimal(100 * r.cell.unanswered), "cost"),
    Column("Accuracy, ours [95 %]", lambda r: percent(r.cell.accuracy), "paper"),
    Column("Accuracy, paper", lambda r: decimal(r.printed("accuracy"), 2), "paper"),
    Column("Paper inside our interval", lambda r: paper.agreement(r.cell), "paper"),
    Column("Output tokens", lambda r: decimal(r.cell.tokens), "cost"),
    Column("Answer tokens", lambda r: decimal(r.cell.answer_tokens), "cost"),
    Column("Answer tokens, paper", lambda r: decimal(r.printed("tokens"), 2), "cost"),
    Column("Latency (s)", lambda r: decimal(r.cell.latency), "cost"),
    Column("Wall time (s)", lambda r: decimal(r.cell.wall), "cost"),
    Column("s per sample", lambda r: decimal(r.cell.seconds, 3), "cost sweep"),
    Column("s per problem, paper", lambda r: decimal(r.printed("seconds"), 3), "cost"),
    Column("Accuracy (%)", lambda r: decimal(100 * r.cell.accuracy.value), "probability"),
    Column("Brier score", _report(lambda found: found.brier, 3), "probability"),
    Column("Brier, constant p", _report(lambda found: found.brier_of_mean, 3), "probability"),
    *(Column(f"Surest {share} (%)", _surest(share), "probability") for share in ("25%", "50%", "75%")),
)  # fmt: skip


def table(key: str, title: str, rows: Iterable[TableRow], note: str) -> Table:
    """The columns that name this table, without those that no row has anything for."""
    rows = list(rows)
    tasks = list(dict.fromkeys(task for row in rows for task in row.cells))
    words = {"reference": rows[0].reference if rows else "", "mean": "Mean" if tasks[1:] else "Accuracy"}  # fmt: skip
    columns: list[tuple[str, list[str]]] = []
    for column in (column for column in COLUMNS if key in column.tables.split()):
        parts = [(column.title.format(**words), column.text)]
        if column is TASK_COLUMNS:
            several = tasks if tasks[1:] or key == "accuracy" else []
            parts = [(title_of(task), _accuracy(task, key == "accuracy")) for task in several]
        columns += [(heading, [text(row) for row in rows]) for heading, text in parts]
    shown = [column for column in columns if any(text != ABSENT for text in column[1])]
    texts = zip(*(texts for _, texts in shown), strict=True)
    return Table(key, title, tuple(heading for heading, _ in shown), list(texts), note)


def by_method(run: RecordedRun, reference: str = "") -> list[TableRow]:
    """A row per method of the main comparison, on all its tasks."""
    cells = run.main_cells
    of_task = {task: [cell.accuracy.value for cell in row.values()] for task, row in cells.items()}
    top = {task: max(v) if len({*v}) > 1 else math.nan for task, v in of_task.items()}
    found = {label: {t: row[label] for t, row in cells.items() if label in row} for label in run.labels()}  # fmt: skip
    return [TableRow(run, label, own, reference, top) for label, own in found.items() if own]


def by_task(run: RecordedRun) -> list[TableRow]:
    """A row per task and method of the main comparison."""
    every = run.main_cells.items()
    return [
        TableRow(run, label, {task: cell}) for task, row in every for label, cell in row.items()
    ]


def summary(run: RecordedRun, reference: str) -> Table:
    """What came out: every method on the mean of the tasks."""
    fewer = [t for t in run.tasks if (row := run.main_cells[t]) and next(iter(row.values())).problems
             < max(run.cells[c].problems for c in run.main(t).values() if c in run.cells)]  # fmt: skip
    notes = [
        "Accuracy in per cent, with 95 % intervals over problems. Passes: forward passes per problem (NFE); "
        "without sharing: what they would be if equal canvases were computed again, as in the paper's "
        "Algorithm 1. p is the larger of the bootstrap's and the sign test's; there is none below ten "
        "problems.",
        *(["Only problems that all methods have been given are counted."] if fewer else []),
        *(["A sample that failed counts as a wrong answer."] if run.failures else []),
    ]
    several = len(run.tasks) > 1
    title = (
        f"Mean of {len(run.tasks)} tasks" if several else f"Accuracy on {title_of(run.tasks[0])}"
    )
    return table("summary", title, by_method(run, reference), " ".join(notes))


def for_terminal(run: RecordedRun, reference: str) -> list[Table]:
    """The summary in two tables that fit 80 columns."""
    rows = by_method(run, reference)
    return [
        table("short", "Accuracy in per cent", rows, ""),
        table("gains", f"Gain over {reference} and forward passes (bold: p < {LEVEL})", rows, ""),
    ]


def accuracy(run: RecordedRun) -> Table:
    """Tables 1 and 2 of the paper."""
    note = (
        "Accuracy in per cent, the mean over seeds, with Wilson's 95 % interval over problems; the "
        "highest on each task is emphasised. Look-ahead: scored at every step. Tilting: resampled or "
        "chosen by exp(λ·score). greedy is the baseline at temperature 0."
    )
    return table("accuracy", "Accuracy on every task (the paper's Tables 1 and 2)", by_method(run), note)  # fmt: skip


def wording(run: RecordedRun) -> Table:
    """Every method under several prompt templates."""
    names = [part.manifest.prompt_style for part in run.parts]
    found: dict[str, list[float]] = {}
    for part in run.parts if len({*names}) == len(names) else ():
        for row in by_method(part):
            found.setdefault(row.label, []).append(100 * row.cell.accuracy.value)
    found = {label: values for label, values in found.items() if len(values) == len(names)}
    tops = [max(column) for column in zip(*found.values(), strict=True)]
    rows = [
        (label, *("*" * (value == top) + decimal(value) for value, top in zip(values, tops, strict=True)),
         decimal(mean(values)), decimal(max(values) - min(values)))
        for label, values in found.items()
    ]  # fmt: skip
    note = (
        "Accuracy in per cent, the mean of the tasks, with each file of prompts; the best method of each "
        "file is emphasised. Spread: the highest less the lowest."
    )
    columns = ("Method", *names, "Mean", "Spread")
    return Table("prompts", "The same methods with other prompts", columns, rows, note)


def cost(run: RecordedRun) -> Table:
    """Tables 4 and 5 of the paper, and what the search did."""
    main = [cell.condition for row in run.main_cells.values() for cell in row.values()]
    blocks = [c for c in run.swept("block_length") if c.condition not in main]
    lengths = [TableRow(run, cell.condition.label, {cell.condition.task: cell}) for cell in blocks]
    order = [*run.tasks, *run.labels()]
    rows = sorted([*by_task(run), *lengths], key=lambda row: (
        order.index(row.cell.condition.task), order.index(row.label),
        row.cell.condition.settings.decoding.block_length))  # fmt: skip
    note = (
        "ESS share: effective sample size of a step's weights divided by the number of children. "
        "Distinct texts: among the survivors. Tokens are counted by "
        f"{run.manifest.token_counter}; the paper does not define its “effective tokens” (3 to 6): we "
        "take them for those of the extracted answer. Latency: wall-clock time without "
        "loading the model. Wall time: the mean of the times at which samples finish."
    )
    return table("cost", "Cost and search on every task (the paper's Tables 4 and 5)", rows, note)


def probability(run: RecordedRun, trusted: Mapping[Condition, CalibrationReport]) -> Table:
    """How far the probabilities of being right can be trusted."""
    rows = [
        TableRow(run, condition.label, {condition.task: run.cells[condition]}, trust=found)
        for condition, found in trusted.items()
    ]
    note = (
        "p_correct: the probability that the chosen answer is right, by the model's calibration for the "
        "task and method. Brier score: mean squared distance to the truth; constant p: if every answer "
        "got the mean accuracy. Last columns: accuracy on the share of answers with the highest p_correct."
    )
    return table("probability", "Probability of being right", rows, note)


def beside_paper(run: RecordedRun, regraded: RecordedRun) -> Table:
    """The paper's accuracies beside ours, graded as the paper does."""
    rows = by_task(regraded) if paper.in_papers_setting(run) else []
    note = (
        f"Ours is graded as HEX does (`--grading {paper.GRADING}`), whose protocol the paper follows. "
        "“too few problems”: our interval holds the paper's figure, and is wider than the gain that the "
        "paper reports on the task. The paper gives no temperature, so greedy stands beside its "
        "baseline, too."
    )
    rows = [row for row in rows if not math.isnan(row.printed("accuracy"))]
    return table("paper", "Beside the paper's accuracy", rows, note)
