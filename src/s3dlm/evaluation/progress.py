"""Progress of an evaluation: a bar with remaining time and accuracy, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Observer
from s3dlm.evaluation.tables import title_of

LINE_EVERY = 10.0  # seconds between lines if there is no terminal


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Left(ProgressColumn):
    """Remaining time for all conditions together."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self.bars = bars

    def render(self, task: Task) -> Text:
        left = self.bars.left()
        return Text("" if left is None else f"{_duration(left)} left", style="cyan")


class Bars(Observer):
    """The observer that the command line passes to `evaluate`."""

    def __init__(self, *plans: Plan) -> None:
        self.console = Console(stderr=True)
        self.conditions = [condition for plan in plans for condition in plan.conditions]
        self.total = sum(plan.cost for plan in plans)
        self.done = self.fresh = 0  # of the cost; fresh: done in this session
        self.right: list[float] = []
        self.failed = self.number = 0
        self.started = self.spoken = time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeElapsedColumn(),
            _Left(self),
            console=self.console,
            transient=True,
        )
        self.bar = self.progress.add_task("", total=None, accuracy="", visible=False)

    def __enter__(self) -> Bars:
        if self.console.is_terminal:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.progress.stop()

    def left(self) -> float | None:
        """Remaining seconds at the speed of this session."""
        if not self.fresh:
            return None
        return (time.monotonic() - self.started) * max(0, self.total - self.done) / self.fresh

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        self._finished()
        self.condition, self.size, self.number = condition, total, self.number + 1
        self.right, self.failed = [record.correct for record in done], 0
        self.done += condition.cost * len(done)
        self.progress.reset(
            self.bar,
            total=total,
            completed=len(done),
            description=self._name(),
            accuracy=self._accuracy(),
            visible=True,
        )

    def record(self, condition: Condition, record: Record | Failure) -> None:
        if isinstance(record, Failure):
            self.failed += 1
            said = f"{record.sample} failed: {record.error}: {record.reason}"
            self.console.print(said, highlight=False, markup=False)
        else:
            self.right.append(record.correct)
        self.done += condition.cost
        self.fresh += condition.cost
        self.progress.update(self.bar, completed=self._count(), accuracy=self._accuracy())
        if self._count() == self.size:
            self._finished()
        elif not self.console.is_terminal and time.monotonic() - self.spoken > LINE_EVERY:
            self._say(f"{self._count()}/{self.size}")

    def _count(self) -> int:
        return len(self.right) + self.failed

    def _finished(self) -> None:
        """One permanent line for a condition that is complete."""
        if self._count() and self._count() == self.size:
            self._say(f"{self.size}/{self.size}")
            self.right, self.failed = [], 0

    def _say(self, how_far: str) -> None:
        left = self.left()
        rest = f", {_duration(left)} left" if left else ""
        self.console.print(f"{self._name()} {how_far} {self._accuracy()}{rest}", highlight=False)
        self.spoken = time.monotonic()

    def _name(self) -> str:
        particles, branching = self.condition.budget
        budget = self.condition.value("budget")
        what = f"{title_of(self.condition.task)} {self.condition.label}"
        size = f"N={particles} b={branching} block={self.condition.settings.block_length}"
        size += "" if budget is None else f" budget={budget}"
        return f"[{self.number}/{len(self.conditions)}] {what} ({size})".replace("[", "\\[", 1)

    def _accuracy(self) -> str:
        share = f"{100 * sum(self.right) / len(self.right):.1f} %" if self.right else ""
        return f"{share} {self.failed} failed" if self.failed else share
