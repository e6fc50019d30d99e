"""What each piece beyond the paper is worth: every variant on the same problems, compared with s3.

A variant is a name and the settings it changes. All have N·b children a step; what they really cost
is the NFE column, because pieces that make children differ also make fewer of them free. So each is
also compared with the smallest best-of-K that really spends at least as much.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from s3dlm.evaluation import summary
from s3dlm.evaluation.plan import Condition, Tuned
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.report import markdown_table
from s3dlm.evaluation.tables import Grid, number, p_value, percent, title_of
from s3dlm.settings import Settings

FULL_SEEDS = 3
STRONG = 10.0  # λ = 1 hardly tilts: the paper's scores differ by hundredths

Changes = Mapping[str, object]

VARIANTS: Mapping[str, Changes] = {
    "baseline": {"method": "baseline", "particles": 1, "branching": 1},
    "best_of_k": {"method": "best_of_k", "particles": 8, "branching": 1},
    "best_of_k, K = 16": {"method": "best_of_k", "particles": 16, "branching": 1},
    "best_of_k, K = 32": {"method": "best_of_k", "particles": 32, "branching": 1},
    "best_of_k, K = 64": {"method": "best_of_k", "particles": 64, "branching": 1},
    "best_of_k, K = 256": {"method": "best_of_k", "particles": 256, "branching": 1},
    "s3": {"method": "s3", "lam": 1.0},
    "s3, λ = 10": {"method": "s3", "lam": STRONG},
    "… annealed tilt": {"method": "s3", "lam": STRONG, "tilt": "annealed"},
    "… adaptive tilt": {"method": "s3", "tilt": "adaptive"},
    "… standardised scores": {"method": "s3", "lam": 1.0, "tilt": "standardised"},
    "… distinct siblings": {"method": "s3", "lam": STRONG, "siblings": "distinct"},
    "… filled step": {"method": "s3", "lam": STRONG, "siblings": "filled"},
    "… temperature 1, 2 on collapse": {
        "method": "s3",
        "lam": STRONG,
        "temperature": 1.0,
        "heat": 2.0,
    },
    "… patience 1": {"method": "s3", "lam": STRONG, "patience": 1},
    "… plus verifier": {"method": "s3", "lam": STRONG, "profile": "plus"},
    "… resample below ESS 0.5": {"method": "s3", "lam": STRONG, "ess_threshold": 0.5},
    "… two repairs": {"method": "s3", "lam": STRONG, "repairs": 2},
    "… every fourth step": {"method": "s3", "lam": STRONG, "cadence": "4"},
    "… verified choice": {"method": "s3", "lam": STRONG, "selection": "verified"},
    "… verified vote": {"method": "s3", "lam": STRONG, "selection": "verified_vote"},
    "… best of all seen": {"method": "s3", "lam": STRONG, "selection": "pool_best"},
    "… vote of all seen": {"method": "s3", "lam": STRONG, "selection": "pool_vote"},
    "twisted, λ = 10": {"method": "twisted", "lam": STRONG},
    "verified best-of-K": {"method": "verified_best_of_k", "particles": 8, "branching": 1},
    "FK, difference": {"method": "fk_difference", "lam": STRONG},
    "FK, max": {"method": "fk_max", "lam": STRONG},
    "FK, sum": {"method": "fk_sum", "lam": STRONG},
    "self-rewarding SMC": {"method": "self_rewarding"},
    "particle Gibbs": {"method": "particle_gibbs", "lam": STRONG},
    "HEX": {"method": "hex"},
    "Prism-style": {"method": "prism"},
    "best": {"method": "best"},
}


# Not pieces of ours but what they are held against: these may be content with fewer problems.
RIVALS = (
    "best_of_k, K = 256",
    "twisted, λ = 10",
    "verified best-of-K",
    "FK, difference",
    "FK, max",
    "FK, sum",
    "self-rewarding SMC",
    "particle Gibbs",
    "HEX",
    "Prism-style",
)


def conditions(
    tasks: Sequence[str],
    base: Settings,
    tuned: Tuned,
    names: Sequence[str] | None = None,
    rivals: int | None = None,
) -> list[Condition]:
    """One condition per task and variant; a method's own tuned settings stand under the variant's.

    With `rivals`, those are asked only so many problems, once.
    """
    chosen = VARIANTS if names is None else {name: VARIANTS[name] for name in names}
    found = [
        Condition(task, name, base.replace(**{**tuned.get(str(own["method"]), {}), **own}))
        for task in tasks
        for name, own in chosen.items()
    ]
    return [
        one if rivals is None or one.label not in RIVALS else replace(one, problems=rivals, seeds=1)
        for one in found
    ]


def tables(run: summary.Evaluation, ours: str = "best") -> list[Grid]:
    """Accuracy and cost of every variant, and `ours` against each on the same problems."""
    every = summary.cells(run)
    grids = []
    for task in run.tasks:
        mine = {c.label: c for c in run.manifest.conditions if c.task == task and c.spec in every}
        nfe = {label: every[condition.spec].nfe for label, condition in mine.items()}
        rows = []
        for label, condition in mine.items():
            cell = every[condition.spec]
            asked = f"{cell.problems} × {cell.seeds}"
            nfes = (number(cell.nfe), number(cell.nfe_logical, 0))
            row = (label, asked, percent(cell.accuracy), *nfes)
            rival = _matched(label, nfe)
            matched = _compared(run, condition, mine.get(rival or ""))
            rows.append((*row, *_compared(run, mine.get(ours), condition), *matched))
        columns = (*COLUMNS, f"{ours} − it", "p", *MATCHED)
        grids.append(Grid(f"beyond_{task}", title_of(task), columns, tuple(rows), NOTE))
    return grids


COLUMNS = ("variant", "problems × seeds", "accuracy (%)", "NFE", "Algorithm 1's")
MATCHED = ("it − best_of_k of its NFE", "p")
NOTE = (
    "Differences in points on the same problems, with McNemar's p. The last pair compares with the "
    "smallest best_of_k whose real NFE is at least the variant's; it is empty where even the largest "
    "one spends less."
)


def _matched(label: str, nfe: Mapping[str, float]) -> str | None:
    """The cheapest best_of_k that really spends at least as much; None where none does."""
    rivals = [one for one in nfe if one.startswith("best_of_k") and nfe[one] >= nfe[label]]
    return None if label.startswith("best_of_k") else min(rivals, key=nfe.__getitem__, default=None)


def _compared(
    run: summary.Evaluation, first: Condition | None, second: Condition | None
) -> tuple[str, str]:
    """How many points the first is better by, and how sure that is."""
    if first is None or second is None or first == second:
        return "", ""
    found = summary.paired(run, first, second)
    return f"{100 * found.difference.value:+.1f}", p_value(found.p_mcnemar)


def _left_out(run: summary.Evaluation) -> list[str]:
    """What a reader must know of a page that does not compare everything."""
    missing = len(VARIANTS) - len({condition.label for condition in run.manifest.conditions})
    seeds = len(run.manifest.seeds)
    if not missing and seeds >= FULL_SEEDS:
        return []
    return [
        f"**A part of the comparison**: {seeds} seed(s), and {missing} of {len(VARIANTS)} variants "
        "are not in it. The same command without `--seeds` and `--variant` measures them all."
    ]


def write(folder: Path, path: Path, command: Sequence[str]) -> None:
    """The page of the documentation that says what each piece is worth."""
    run = summary.read(folder)
    base = Settings.from_json(run.manifest.base)
    tuned = {
        c.settings.temperature for c in run.manifest.conditions if c.label == "best_of_k, K = 64"
    }
    parts = [
        "# Beyond the paper: what each piece is worth",
        "Made by one command; `best` and its settings were chosen on the validation split:",
        f"```\ns3dlm {shlex.join(command)}\n```",
        f"Model {run.manifest.model}, split `{run.manifest.split}`. N = {base.particles}, "
        f"b = {base.branching}, temperature {base.temperature:g} where nothing else is said; "
        f"best_of_k has its own best temperature, {', '.join(f'{t:g}' for t in sorted(tuned))}. "
        "Accuracy with its 95 % interval over problems; NFE is the mean number of rows really "
        "forwarded for a problem. The … rows change one thing of “s3, λ = 10”.",
        *_left_out(run),
        *(markdown_table(grid) for grid in tables(run)),
    ]
    write_atomic(path, "\n\n".join(parts) + "\n")
