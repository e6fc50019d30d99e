"""Problems on which a verifier's weights were fitted: figures on them flatter it, and a report says so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from s3dlm import tasks
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, number, title_of
from s3dlm.verifier.weights import was_in_fit


@dataclass(frozen=True, slots=True)
class InFit:
    """The problems of a condition that its verifier was fitted on, and accuracy on both kinds."""

    condition: Condition
    problems: int
    seen: int
    accuracy_seen: float
    accuracy_other: float


def in_fit(run: Evaluation) -> list[InFit]:
    """Every condition of the main comparison with such problems."""
    every = (c for task in run.tasks for c in run.main(task).values())
    found = (_of(run, condition) for condition in every)
    return [one for one in found if one.seen]


def _of(run: Evaluation, condition: Condition) -> InFit:
    verifier, weights = str(condition.value("verifier")), tasks.get(condition.task).verifier
    seen = {
        sample.id
        for sample in run.samples[condition.task]
        if was_in_fit(weights, verifier, sample.question)
    }
    records = run.records[condition]
    problems = {record.sample for record in records}

    def accuracy(inside: bool) -> float:
        grades = [r.correct for r in records if (r.sample in seen) == inside]
        return sum(grades) / len(grades) if grades else math.nan

    return InFit(condition, len(problems), len(seen & problems), accuracy(True), accuracy(False))


def warnings(found: list[InFit]) -> Iterator[str]:
    """One sentence per condition."""
    for one in found:
        yield (
            f"{one.condition.label} on {title_of(one.condition.task)}: {one.seen} of {one.problems} "
            f"problems were used to fit its verifier; accuracy on the others: "
            f"{number(100 * one.accuracy_other)} %."
        )


def table(found: list[InFit]) -> Grid:
    """Accuracy on problems that the verifier was fitted on, and on the others."""
    rows = tuple(
        (
            title_of(one.condition.task),
            one.condition.label,
            f"{one.seen} of {one.problems}",
            number(100 * one.accuracy_seen),
            number(100 * one.accuracy_other),
        )
        for one in found
    )
    columns = ("Task", "Method", "In the fit", "Accuracy on these (%)", "on the others (%)")
    note = (
        "The weights of the verifier `plus` were fitted on outputs of another model for these "
        "problems (docs/verifier.md). Quote the last column."
    )
    title = "Problems on which the verifier was fitted"
    return Grid("in_fit", title, columns, rows, note)
