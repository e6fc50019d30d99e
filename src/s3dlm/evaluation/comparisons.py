"""Every method against one reference: the paired comparisons of a report, as tables and sentences."""

from __future__ import annotations

from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.statistics import Comparison
from s3dlm.evaluation.tables import LEVEL, Table, p_value, points

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("revise", "s3")  # methods that the verdict speaks of, if they were run
MEAN = "mean of tasks"
UNCLEAR = "not significantly different from"


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
        shifts = {
            t: 100 * results[t].difference.value for t in tasks if outcome(results[t]) == kind
        }
        if shifts:
            parts.append(f"{word} on {', '.join(f'{t} ({gap:+.1f})' for t, gap in shifts.items())}")
    rest = [other for other in run.labels() if other not in (label, reference)]
    rest = [o for o in rest if len(against(run, label, o)) == len(results)]  # on as many tasks
    top = max((reference, *rest), key=lambda other: run.mean_accuracy(other).value)
    if top != reference:
        ahead = against(run, label, top)
        gap = in_words(top, ahead.get(MEAN, next(iter(ahead.values()))))
        parts.append(f"compared with {top}, the most accurate other method, {gap}")
    return f"{'; '.join(parts)}."
