"""Progress of an evaluation: a bar in a terminal, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from s3dlm.evaluation.plan import Condition, Plan, title_of
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Observer

LINE_EVERY = 10.0  # seconds between lines if there is no terminal


class Display(Observer):
    """One bar with a text, or a line now and then."""

    def __init__(self, total: float, *times: TimeElapsedColumn | TimeRemainingColumn) -> None:
        self.console, self.last_line = Console(stderr=True), time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), *times)
        hidden = not self.console.is_terminal
        self.progress = Progress(*columns, console=self.console, transient=True, disable=hidden)
        self.bar = self.progress.add_task("", total=total)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, text: str, *, always: bool = False, advance: float | None = None) -> None:
        """Put a text beside the bar; `always` leaves a line behind, too."""
        self.progress.update(self.bar, description=text, advance=advance)
        overdue = time.monotonic() - self.last_line > LINE_EVERY
        if always or (overdue and not self.console.is_terminal):
            left = self.progress.tasks[0].time_remaining
            rest = f", {timedelta(seconds=round(left))} left" if left else ""
            self.console.print(f"{text}{rest}", highlight=False)
            self.last_line = time.monotonic()


class Bars(Display):
    """The observer that the command line passes to `evaluate`; the bar is that of all conditions."""

    def __init__(self, *plans: Plan) -> None:
        self.total: float = sum(plan.cost for plan in plans)
        super().__init__(self.total, TimeElapsedColumn(), TimeRemainingColumn())
        self.conditions, self.number = sum(len(plan.conditions) for plan in plans), 0

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        self.size, self.number, self.failed = total, self.number + 1, 0
        self.right = [record.correct for record in done]
        self.total -= condition.cost * len(
            done
        )  # what an earlier session did says nothing of speed
        self.progress.update(self.bar, total=self.total)
        self.show(self._line(condition), always=0 < total == len(done))

    def record(self, condition: Condition, record: Record | Failure) -> None:
        if isinstance(record, Failure):
            self.failed += 1
            failure = f"{record.sample} failed: {record.error}: {record.reason}"
            self.console.print(failure, highlight=False, markup=False)
        else:
            self.right.append(record.correct)
        complete = len(self.right) + self.failed == self.size
        self.show(self._line(condition), always=complete, advance=condition.cost)

    def _line(self, condition: Condition) -> str:
        particles, branching = condition.budget
        size = f"N={particles} b={branching} block={condition.settings.block_length}"
        if condition.value("budget") is not None:
            size += f" budget={condition.value('budget')}"
        line = f"\\[{self.number}/{self.conditions}] {title_of(condition.task)} {condition.label} ({size})"
        line += f" {len(self.right) + self.failed}/{self.size}"
        line += f" {100 * sum(self.right) / len(self.right):.1f} %" if self.right else ""
        return f"{line} {self.failed} failed" if self.failed else line
