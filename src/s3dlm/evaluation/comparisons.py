"""Every method against one reference: the paired comparisons of a report, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.statistics import Comparison
from s3dlm.evaluation.summary import Evaluation, mean_accuracy, mean_nfe, overall, paired
from s3dlm.evaluation.tables import Grid, title_of

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("best", "s3")  # methods that the verdict speaks of, if they were run
MEAN = "mean of tasks"
LEVEL = 0.05
UNCLEAR = "not significantly different from"


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def reference_of(run: Evaluation, wanted: str | None = None) -> str:
    """The method that all others are compared with."""
    labels = run.labels()
    if wanted is not None and wanted not in labels:
        raise SettingsError(unknown_name("reference", wanted, labels))
    usual = (label for one in REFERENCES for label in labels if label.partition(" (")[0] == one)
    return wanted or next(usual, labels[0])


def _against(run: Evaluation, label: str, reference: str) -> dict[str, Comparison]:
    """One method against the reference: by task, and on the mean if there are several."""
    found = {
        title_of(task): paired(run, main[label], main[reference])
        for task in run.tasks
        if label in (main := run.main(task)) and reference in main
    }
    found = {title: one for title, one in found.items() if one.problems}
    return {**found, MEAN: overall(run, label, reference)} if len(found) > 1 else found


def comparisons(run: Evaluation, reference: str) -> Grid:
    """Paired comparisons of every method with the reference."""
    rows = [
        (label, title, _gap(one), f"{one.wins} : {one.losses}", str(one.problems), p_value(one.p))
        for label in run.labels()
        if label != reference
        for title, one in _against(run, label, reference).items()
    ]
    note = (
        f"Difference in accuracy to {reference} on the problems and seeds that both have, with a 95 "
        "% bootstrap interval over problems with all their seeds (10,000 draws). Better : worse "
        "counts problems, by the mean over seeds. p is the larger of the bootstrap's and the exact "
        "sign test's over problems; emphasised below 0.05."
    )
    columns = ("Method", "Task", f"Δ vs {reference}, points", "Better : worse", "Problems", "p")
    return Grid("comparisons", f"Compared with {reference}", columns, tuple(rows), note)


def short_comparisons(run: Evaluation, reference: str) -> Grid:
    """The comparisons in short, for a terminal."""
    found = {label: _against(run, label, reference) for label in run.labels() if label != reference}
    titles = list(dict.fromkeys(title for some in found.values() for title in some))
    rows = tuple(
        (label, *(_short_gap(some[title]) if title in some else "–" for title in titles))
        for label, some in found.items()
        if some
    )
    title = f"Δ accuracy vs {reference} in points (bold: p < {LEVEL})"
    columns = ("Method", *("Mean" if title == MEAN else title for title in titles))
    return Grid("short_comparisons", title, columns, rows)


def _gap(one: Comparison) -> str:
    gap = one.difference
    points = f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    return f"*{points}" if one.p < LEVEL else points


def _short_gap(one: Comparison) -> str:
    points = f"{100 * one.difference.value:+.1f}"
    return f"*{points}" if one.p < LEVEL else points


def verdict(run: Evaluation, reference: str) -> list[str]:
    """One sentence per headline method: what it gains at what cost, and where it does not."""
    others = [label for label in run.labels() if label != reference]
    chosen = [label for label in HEADLINE if label in others] or others
    return [text for label in chosen if (text := _sentence(run, label, reference))]


def _sentence(run: Evaluation, label: str, reference: str) -> str:
    found = _against(run, label, reference)
    if not found:
        return ""
    tasks = [title for title in found if title != MEAN]
    where = f"mean of {len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
    whole = found.get(MEAN, found[tasks[0]])
    parts = [
        f"{label} is {_outcome(whole)} {reference} in accuracy: "
        f"{_in_words(run, label, reference, whole)} ({where}, {whole.problems} problems)",
        *(_by_task(found) if len(tasks) > 1 else ()),
    ]
    rest = [one for one in run.labels() if one not in (label, reference)]
    rest = [one for one in rest if len(_against(run, label, one)) == len(found)]  # on as many tasks
    top = max((reference, *rest), key=lambda one: mean_accuracy(run, one).value)
    if top != reference:
        gap = _against(run, label, top)
        words = _in_words(run, label, top, gap.get(MEAN, next(iter(gap.values()))))
        parts.append(f"compared with {top}, the most accurate other method, {words}")
    return f"{'; '.join(parts)}."


def _outcome(one: Comparison) -> str:
    if one.p >= LEVEL:
        return UNCLEAR
    return "better than" if one.difference.value > 0 else "worse than"


def _in_words(run: Evaluation, label: str, other: str, one: Comparison) -> str:
    """The difference with interval and p-value, and the forward passes of both."""
    p = p_value(one.p) if one.p < 0.001 else f"= {p_value(one.p)}"
    if one.p >= LEVEL and one.difference.low * one.difference.high > 0:
        p += " by the sign test"  # the interval is the bootstrap's and excludes 0
    spent, instead = mean_nfe(run, label, other), mean_nfe(run, other, label)
    gap = _gap(one).lstrip("*")
    return f"{gap} points, p {p}, for {spent:.1f} NFE per problem instead of {instead:.1f}"


def _by_task(found: Mapping[str, Comparison]) -> Iterator[str]:
    """Where a method is better, worse and not clearly different."""
    groups: dict[str, list[str]] = {}
    for title, one in found.items():
        if title != MEAN:
            text = f"{title} ({100 * one.difference.value:+.1f})"
            groups.setdefault(_outcome(one), []).append(text)
    alone = " by itself" if MEAN in found and found[MEAN].p < LEVEL else ""
    words = {"better than": "better", "worse than": "worse", UNCLEAR: f"not significant{alone}"}
    for outcome, word in words.items():
        if outcome in groups:
            yield f"{word} on {', '.join(groups[outcome])}"
