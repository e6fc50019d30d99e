"""A run's report as a page of the docs: its tables, copies of its figures, and the command that made it.

    python -m tools.results_page runs/tiny docs/appendix/results.md reproduce --model tiny --out runs/tiny

What follows the page is the command of `s3dlm` that made the run.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from s3dlm.evaluation import cost
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.report import Report, write

TUNED = (
    "Temperature and λ of the methods in the file named there are those of that file (`python -m "
    "benchmarks.tune` chooses them on the validation split); all settings are listed at the end."
)
UNTUNED = (
    "Temperature and λ were not tuned for this run: they are what the model recommends, or the paper's "
    "λ and our temperature. The settings of every method are listed at the end."
)
FULL_SEEDS = 3  # of the project's own comparison


def write_results(made: Report, path: Path, command: Sequence[str]) -> None:
    """A report as a documentation page: its tables, copies of its figures, the command that made it."""
    plan, images = made.run.manifest, path.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name in made.drawn:
        source = made.html.parent / "figures" / f"{name}.png"
        shutil.copyfile(source, images / f"{path.stem}-{name}.png")
    published = {task: cost.problem_count(task, plan.prompt_style, None) for task in plan.counts}
    fewer = [
        f"{plan.counts[task]} of {most} problems of {title_of(task)}"
        for task, most in published.items()
        if plan.counts[task] < most
    ]
    if len(plan.seeds) < FULL_SEEDS:
        fewer.append(f"{len(plan.seeds)} of {FULL_SEEDS} seeds")
    parts = [
        f"# Results on {plan.model}",
        "Tables and text were made by one command:",
        f"```\ns3dlm {shlex.join(command)}\n```",
        *([f"**A reduced run**: {', '.join(fewer)}."] if fewer else []),
        TUNED if "--tuned" in " ".join(command) else UNTUNED,
        *made.to_markdown(f"images/{path.stem}-"),
    ]
    write_atomic(path, "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    write_results(write(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3:])
