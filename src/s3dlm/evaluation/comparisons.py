"""Every method against one reference: the paired comparisons of a report, as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.statistics import Comparison
from s3dlm.evaluation.summary import Evaluation, overall, paired
from s3dlm.evaluation.tables import Grid, title_of

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("best", "s3")  # methods that the verdict speaks of, if they were run
MEAN = "mean of tasks"
LEVEL = 0.05


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def reference_of(run: Evaluation, wanted: str | None = None) -> str:
    """The method that all others are compared with."""
    labels = run.labels()
    if wanted is not None and wanted not in labels:
        raise SettingsError(unknown_name("reference", wanted, labels))
    return wanted or next((one for one in REFERENCES if one in labels), labels[0])


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
    return Grid("short_comparisons", title, ("Method", *titles), rows)


def _gap(one: Comparison) -> str:
    gap = one.difference
    points = f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    return f"*{points}" if one.p < LEVEL else points


def _short_gap(one: Comparison) -> str:
    points = f"{100 * one.difference.value:+.1f}"
    return f"*{points}" if one.p < LEVEL else points


def verdict(run: Evaluation, reference: str) -> list[str]:
    """One sentence per headline method: where it is better, worse and not clearly different."""
    others = [label for label in run.labels() if label != reference]
    chosen = [label for label in HEADLINE if label in others] or others
    found = [(label, _against(run, label, reference)) for label in chosen]
    return [_sentence(label, reference, some) for label, some in found if some]


def _sentence(label: str, reference: str, found: Mapping[str, Comparison]) -> str:
    tasks = {title: one for title, one in found.items() if title != MEAN}
    groups: dict[str, list[str]] = {"better": [], "worse": [], "not significantly different": []}
    for title, one in tasks.items():
        clear = "better" if one.difference.value > 0 else "worse"
        key = clear if one.p < LEVEL else "not significantly different"
        groups[key].append(f"{title} ({100 * one.difference.value:+.1f})")
    parts = [f"{key} on {', '.join(names)}" for key, names in groups.items() if names]
    text = f"{label} compared with {reference}, in points of accuracy: {'; '.join(parts)}"
    if MEAN in found:
        one = found[MEAN]
        p = p_value(one.p) if one.p < 0.001 else f"= {p_value(one.p)}"
        text += f"; mean of tasks {_gap(one).lstrip('*')}, p {p}"
    return f"{text}."
