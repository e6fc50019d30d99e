"""Every method against one reference: the paired comparisons of a report, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.statistics import Comparison
from s3dlm.evaluation.tables import LEVEL, Table, p_value, points, table

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("best", "s3")  # methods that the verdict speaks of, if they were run
MEAN = "mean of tasks"
UNCLEAR = "not significantly different from"


def reference_of(run: Run, requested: str | None = None) -> str:
    """The method that all others are compared with."""
    labels = run.labels()
    if requested is not None and requested not in labels:
        raise SettingsError(unknown_name("reference", requested, labels))
    defaults = (
        label for name in REFERENCES for label in labels if label.partition(" (")[0] == name
    )
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
    return table("comparisons", f"Compared with {reference}", columns, rows, note)


def short_comparisons(run: Run, reference: str) -> Table:
    """The comparisons in short, for a terminal."""
    rows = {label: against(run, label, reference) for label in run.labels() if label != reference}
    titles = list(dict.fromkeys(title for row in rows.values() for title in row))
    texts = [
        (label, *(points(row[t].difference, row[t].p).split(" ")[0] if t in row else "–" for t in titles))
        for label, row in rows.items()
        if row
    ]  # fmt: skip
    title = f"Δ accuracy vs {reference} in points (bold: p < {LEVEL})"
    columns = ("Method", *("Mean" if title == MEAN else title for title in titles))
    return table("short_comparisons", title, columns, texts)


def verdict(run: Run, reference: str) -> list[str]:
    """One sentence per headline method: what it gains at what cost, and where it does not."""
    others = [label for label in run.labels() if label != reference]
    chosen = [label for label in HEADLINE if label in others] or others
    return [text for label in chosen if (text := _sentence(run, label, reference))]


def _sentence(run: Run, label: str, reference: str) -> str:
    results = against(run, label, reference)
    if not results:
        return ""
    tasks = [title for title in results if title != MEAN]
    where = f"mean of {len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
    whole = results.get(MEAN, results[tasks[0]])
    parts = [
        f"{label} is {_outcome(whole)} {reference} in accuracy: "
        f"{_in_words(run, label, reference, whole)} ({where}, {whole.problems} problems)",
        *(_by_task(results) if len(tasks) > 1 else ()),
    ]
    rest = [other for other in run.labels() if other not in (label, reference)]
    rest = [o for o in rest if len(against(run, label, o)) == len(results)]  # on as many tasks
    top = max((reference, *rest), key=lambda other: run.mean_accuracy(other).value)
    if top != reference:
        gaps = against(run, label, top)
        words = _in_words(run, label, top, gaps.get(MEAN, next(iter(gaps.values()))))
        parts.append(f"compared with {top}, the most accurate other method, {words}")
    return f"{'; '.join(parts)}."


def _outcome(comparison: Comparison) -> str:
    if comparison.p >= LEVEL:
        return UNCLEAR
    return "better than" if comparison.difference.value > 0 else "worse than"


def _in_words(run: Run, label: str, other: str, comparison: Comparison) -> str:
    """The difference with interval and p-value, and the forward passes of both."""
    gap, p = comparison.difference, p_value(comparison.p)
    p = p if comparison.p < 0.001 else f"= {p}"
    if comparison.p >= LEVEL and gap.low * gap.high > 0:
        p += " by the sign test"  # the interval is the bootstrap's and excludes 0
    nfe = f"{run.mean_nfe(label, other):.1f} NFE per problem instead of {run.mean_nfe(other, label):.1f}"
    return f"{points(gap, 1.0)} points, p {p}, for {nfe}"


def _by_task(results: Mapping[str, Comparison]) -> Iterator[str]:
    """Where a method is better, worse and not clearly different."""
    groups: dict[str, list[str]] = {}
    for title, comparison in results.items():
        if title != MEAN:
            text = f"{title} ({100 * comparison.difference.value:+.1f})"
            groups.setdefault(_outcome(comparison), []).append(text)
    alone = " by itself" if MEAN in results and results[MEAN].p < LEVEL else ""
    words = {"better than": "better", "worse than": "worse", UNCLEAR: f"not significant{alone}"}
    for outcome, word in words.items():
        if outcome in groups:
            yield f"{word} on {', '.join(groups[outcome])}"
