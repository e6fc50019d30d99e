"""Methods against each other: paired comparisons with one reference, and differences at equal cost.

At equal cost, a point of one curve is compared with another curve. Between two of its points a curve is
interpolated linearly over log cost. A bootstrap draw takes problems with all their seeds, and with them
what each method spent on them: in every draw both curves have another cost, too, so that a difference is
not taken for certain because of where a point happens to lie. Nothing is extrapolated: outside the other
curve's range there is no comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.statistics import Comparison, Floats, Interval, mean, percentiles, summarise
from s3dlm.evaluation.tables import LEVEL, Table, number, p_value, points

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("revise", "s3")  # methods that the verdict speaks of, if they were run
MEAN = "mean of tasks"
UNCLEAR = "not significantly different from"
OURS, OTHER = "s3", "best_of_k"  # the curves that are compared at equal cost
DRAWS, AT_ONCE = 10_000, 500


def reference_of(run: Run, requested: str | None = None) -> str:
    """The method that all others are compared with."""
    labels = run.labels()
    if not labels:
        raise RecordError("the run has no main comparison, so there is nothing to report on")
    if requested is not None and requested not in labels:
        raise SettingsError(unknown_name("reference", requested, labels))
    defaults = (each for name in REFERENCES for each in labels if each.partition(" (")[0] == name)
    return requested or next(defaults, labels[0])


def against(run: Run, label: str, reference: str) -> dict[str, Comparison]:
    """One method against the reference: by task, and on the mean if there are several."""
    by_task = {title_of(task): run.compare(label, reference, task) for task in run.tasks}
    by_task = {title: each for title, each in by_task.items() if each.problems}
    return {**by_task, MEAN: run.compare(label, reference)} if len(by_task) > 1 else by_task


def comparisons(run: Run, reference: str) -> Table:
    """Paired comparisons of every method with the reference."""
    rows = [
        (label, title, points(each.difference, each.p), f"{each.wins} : {each.losses}",
         str(each.problems), p_value(each.p))
        for label in run.labels()
        if label != reference
        for title, each in against(run, label, reference).items()
    ]  # fmt: skip
    note = (
        f"Difference in accuracy to {reference} on the problems and seeds that both have, with a 95 "
        "% bootstrap interval over problems with all their seeds (10,000 draws). Better : worse "
        "counts problems, by the mean over seeds. p is the larger of the bootstrap's and the exact "
        "sign test's over problems; emphasised below 0.05."
    )
    columns = ("Method", "Task", f"Δ vs {reference}, points", "Better : worse", "Problems", "p")
    return Table("comparisons", f"Compared with {reference}", columns, rows, note)


def short_comparisons(run: Run, reference: str) -> Table:
    """The comparisons in short, for a terminal."""
    gaps: dict[str, dict[str, str]] = {}
    for label, title, gap, *_ in comparisons(run, reference).rows:
        gaps.setdefault(label, {})["Mean" if title == MEAN else title] = gap.split(" ")[0]
    titles = list(dict.fromkeys(title for row in gaps.values() for title in row))
    rows = [(label, *(row.get(title, "–") for title in titles)) for label, row in gaps.items()]
    title = f"Δ accuracy vs {reference} in points (bold: p < {LEVEL})"
    return Table("short_comparisons", title, ("Method", *titles), rows)


# What changes, and the two methods between which nothing else does.
ENDINGS = (
    ("search, with a vote at the end", "best_of_k", "s3"),
    ("search, with the best score at the end", "verified_best_of_k", "s3_verified"),
    ("ending, without search", "best_of_k", "verified_best_of_k"),
    ("ending, with search", "s3", "s3_verified"),
)


def endings(run: Run) -> Table:
    """How much is the search's, and how much the verifier's as the judge of finished texts."""
    rows: list[tuple[str, ...]] = []
    titles = [*map(title_of, run.tasks), *([MEAN] * (len(run.tasks) > 1))]
    for what, before, after in ENDINGS:
        found = against(run, after, before) if {before, after} <= set(run.labels()) else {}
        if found:
            spent = f"{run.mean_nfe(before, after):.1f} → {run.mean_nfe(after, before):.1f}"
            gaps = {title: points(each.difference, each.p) for title, each in found.items()}
            rows.append((what, f"{before} → {after}", *(gaps.get(t, "–") for t in titles), spent))
    columns = ("What changes", "Methods", *titles, "NFE")
    note = "Points gained, as above; every method at the temperature and λ of its own."
    return Table("endings", "Search and ending apart", columns, rows, note)


def verdict(run: Run, reference: str) -> list[str]:
    """One sentence per headline method: what it gains at what cost, and where it does not."""
    others = [label for label in run.labels() if label != reference]
    chosen = [label for label in HEADLINE if label in others] or others
    return [text for label in chosen if (text := _sentence(run, label, reference))]


def _sentence(run: Run, label: str, reference: str) -> str:
    def outcome(comparison: Comparison) -> str:
        if comparison.p >= LEVEL:
            return UNCLEAR
        return "better than" if comparison.difference.value > 0 else "worse than"

    def in_words(other: str, comparison: Comparison) -> str:
        """The difference with interval and p-value, and the forward passes of both."""
        gap, p = comparison.difference, p_value(comparison.p)
        p = p if comparison.p < 0.001 else f"= {p}"
        if comparison.p >= LEVEL and gap.low * gap.high > 0:
            p += " by the sign test"  # the interval is the bootstrap's and excludes 0
        ours, theirs = run.mean_nfe(label, other), run.mean_nfe(other, label)
        nfe = f"{ours:.1f} NFE per problem instead of {theirs:.1f}"
        return f"{points(gap, 1.0)} points, p {p}, for {nfe}"

    results = against(run, label, reference)
    if not results:
        return ""
    tasks = [title for title in results if title != MEAN]
    where = f"mean of {len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
    whole = results.get(MEAN, results[tasks[0]])
    gain = f"{label} is {outcome(whole)} {reference} in accuracy: {in_words(reference, whole)}"
    parts = [f"{gain} ({where}, {whole.problems} problems)"]
    alone = " by itself" if whole.p < LEVEL else ""
    words = {"better than": "better", "worse than": "worse", UNCLEAR: f"not significant{alone}"}
    for kind, word in words.items() if len(tasks) > 1 else ():
        alike = {task: results[task].difference for task in tasks if outcome(results[task]) == kind}
        if alike:
            shifts = [f"{task} ({100 * gap.value:+.1f})" for task, gap in alike.items()]
            parts.append(f"{word} on {', '.join(shifts)}")
    rest = [other for other in run.labels() if other not in (label, reference)]
    rest = [o for o in rest if len(against(run, label, o)) == len(results)]  # on as many tasks
    top = max((reference, *rest), key=lambda other: run.mean_accuracy(other).value)
    if top != reference:
        ahead = against(run, label, top)
        gap = in_words(top, ahead.get(MEAN, next(iter(ahead.values()))))
        parts.append(f"compared with {top}, the most accurate other method, {gap}")
    return f"{'; '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Lead:
    """A point's lead over another curve at equal cost."""

    cost: float
    difference: Interval
    p: float


def lead(tasks: Sequence[tuple[Floats, Floats]]) -> Lead | None:
    """Per task, grades and costs of shape (1 + points, problems), the first row ours; None outside
    the other curve's range. The figure is the mean of the tasks."""
    grades, costs = (np.mean([part[i].mean(axis=1) for part in tasks], axis=0) for i in (0, 1))
    low, high = costs[1:].min() * (1 - 1e-9), costs[1:].max() * (1 + 1e-9)
    if not low <= costs[0] <= high:
        return None
    rng, drawn = np.random.default_rng(0), []  # the same records give the same interval
    for _ in range(DRAWS // AT_ONCE):
        both = np.zeros((2, AT_ONCE, len(grades)))
        for task in tasks:
            size = task[0].shape[1]
            counts = rng.multinomial(size, np.full(size, 1 / size), size=AT_ONCE) / size
            both += np.stack([counts @ values.T for values in task]) / len(tasks)
        drawn += [_difference(*pair) for pair in zip(*both, strict=True)]
    return Lead(float(costs[0]), *percentiles(_difference(grades, costs), np.array(drawn)))


def _difference(grades: Floats, costs: Floats) -> float:
    order = 1 + np.argsort(costs[1:], kind="stable")
    there = np.interp(np.log(costs[0]), np.log(costs[order]), grades[order])
    return float(grades[0] - there)


def at_equal_cost(run: Run) -> Table:
    """s3 over N and b against best_of_k at as many forward passes, and in as many seconds."""
    swept, name = run.swept("particles", "branching"), attrgetter("sample")
    # A point has, for every task, an array of grades, NFE and seconds by problem.
    curves: dict[str, dict[tuple[int, int], list[Floats]]] = {OURS: {}, OTHER: {}}
    for condition, records in swept.items():
        if condition.label in curves:
            timed = summarise(condition, records).seconds
            by_problem = [list(same) for _, same in groupby(sorted(records, key=name), key=name)]
            grades = [mean(record.correct for record in same) for same in by_problem]
            spent = [mean(record.nfe for record in same) for same in by_problem]
            arrays = np.array([grades, spent, [timed] * len(spent)])
            curves[condition.label].setdefault(condition.budget, []).append(arrays)
    ours, others = (
        {budget: point for budget, point in sorted(curve.items()) if len(point) == len(run.tasks)}
        for curve in curves.values()
    )
    rows = []
    for budget, point in ours.items() if len(others) > 1 else ():
        accuracy, nfe, seconds = (mean(arrays[i].mean() for arrays in point) for i in range(3))
        at_nfe, at_seconds = (_lead_in_words([point, *others.values()], row) for row in (1, 2))
        rows.append((
            *map(str, budget), number(100 * accuracy), number(nfe), *at_nfe, number(seconds, 3),
            *at_seconds,
        ))  # fmt: skip
    problems = sorted({len({r.sample for r in records}) for records in swept.values()})
    columns = ("N", "b", "Accuracy", "NFE", "Δ at equal NFE", "p",
               "s per sample", "Δ at equal seconds", "p")  # fmt: skip
    note = (
        f"{MEAN.capitalize()}, {'–'.join(map(str, problems))} problems each. Δ: accuracy of {OURS} minus "
        f"that of {OTHER}, whose curve over K is interpolated over log NFE or log seconds; 95 % bootstrap "
        "interval over problems, their NFE included; seconds are those of the timed samples and not "
        f"resampled. –: {OTHER} never spends as much, or as little."
    )
    title = f"{OURS} against {OTHER} at equal cost"
    return Table("equal_cost", title, columns, rows, note, late=True)


def _lead_in_words(curve: Sequence[Sequence[Floats]], row: int) -> tuple[str, str]:
    """The lead of the first point over the others; `row` of the arrays is the cost."""
    by_task = [np.array(arrays) for arrays in zip(*curve, strict=True)]
    tasks = [(arrays[:, 0], arrays[:, row]) for arrays in by_task]
    ahead = lead(tasks) if all((costs > 0).all() for _, costs in tasks) else None
    return ("–", "–") if ahead is None else (points(ahead.difference, ahead.p), p_value(ahead.p))
