"""Progress of an evaluation: a bar with remaining time and accuracy, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from s3dlm.evaluation.plan import Condition, Plan, title_of
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Observer

LINE_EVERY = 10.0  # seconds between lines if there is no terminal


class Bars(Observer):
    """The observer that the command line passes to `evaluate`; the bar is that of all conditions."""

    def __init__(self, *plans: Plan) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.total = sum(plan.cost for plan in plans)
        self.bar = self.progress.add_task("", total=self.total)
        self.conditions, self.number = sum(len(plan.conditions) for plan in plans), 0
        self.last_line = time.monotonic()

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        self.condition, self.size, self.number = condition, total, self.number + 1
        self.right, self.failed = [record.correct for record in done], 0
        self.total -= condition.cost * len(
            done
        )  # what an earlier session did says nothing of speed
        self.progress.update(self.bar, total=self.total, description=self._line())
        if total and total == len(done):
            self._print()

    def record(self, condition: Condition, record: Record | Failure) -> None:
        if isinstance(record, Failure):
            self.failed += 1
            failure = f"{record.sample} failed: {record.error}: {record.reason}"
            self.console.print(failure, highlight=False, markup=False)
        else:
            self.right.append(record.correct)
        self.progress.update(self.bar, advance=condition.cost, description=self._line())
        overdue = time.monotonic() - self.last_line > LINE_EVERY
        if len(self.right) + self.failed == self.size:
            self._print()  # one permanent line for a condition that is complete
        elif overdue and not self.console.is_terminal:
            self._print()

    def _print(self) -> None:
        left = self.progress.tasks[0].time_remaining
        rest = f", {timedelta(seconds=round(left))} left" if left else ""
        self.console.print(f"{self._line()}{rest}", highlight=False)
        self.last_line = time.monotonic()

    def _line(self) -> str:
        condition, done = self.condition, len(self.right) + self.failed
        particles, branching = condition.budget
        size = f"N={particles} b={branching} block={condition.settings.block_length}"
        if condition.value("budget") is not None:
            size += f" budget={condition.value('budget')}"
        line = f"\\[{self.number}/{self.conditions}] {title_of(condition.task)} {condition.label} ({size})"
        line += f" {done}/{self.size}"
        line += f" {100 * sum(self.right) / len(self.right):.1f} %" if self.right else ""
        return f"{line} {self.failed} failed" if self.failed else line
