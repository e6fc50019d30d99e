"""How the search behaves: small studies, each with a figure.

python -m benchmarks.behaviour exact look_aheads genealogy --limit 40
python -m benchmarks.behaviour lam_temperature sizes resamplers --limit 30
python -m benchmarks.behaviour clock late --limit 20
python -m benchmarks.behaviour oracle --limit 100

Every study writes its figures as CSV and SVG into --images (docs/images by default); grids are evaluations
in --out and resume there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import s3dlm
from benchmarks import study
from benchmarks.behaviour import clock, exact, figures, grids, late, oracle, steps

VALIDATION = "validation"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.behaviour",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="+", choices=list(STUDIES), metavar="STUDY",
                        help=", ".join(STUDIES))  # fmt: skip
    study.add_options(parser)
    parser.set_defaults(limit=40)
    parser.add_argument("--out", type=Path, default=Path("runs/behaviour"), help="folder of runs")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="for the figures")
    return parser.parse_args(arguments)


Made = tuple[pd.DataFrame, Figure]
Study = Callable[[argparse.Namespace], Mapping[str, Made]]


def _exact(options: argparse.Namespace) -> dict[str, Made]:
    potentials = pd.concat([exact.potentials(lam, 3) for lam in exact.LAMBDAS])
    distances = exact.distances()
    return {
        "exact": (distances, figures.distances(distances)),
        "potentials": (potentials, figures.potentials(potentials)),
    }


def _watched(options: argparse.Namespace) -> tuple[s3dlm.Model, list[str]]:
    model = s3dlm.load(options.model)
    return model, study.names(options.task) or list(model.defaults.tasks)


def _look_aheads(options: argparse.Namespace) -> dict[str, Made]:
    model, tasks = _watched(options)
    parts = {
        verifier: steps.by_progress(steps.look_aheads(model, tasks, options.limit, verifier))
        for verifier in ("paper", "checker")
    }
    frame = pd.concat([part.assign(verifier=name) for name, part in parts.items()])
    return {"look_aheads": (frame, figures.look_aheads(frame))}


def _genealogy(options: argparse.Namespace) -> dict[str, Made]:
    model, tasks = _watched(options)
    frame = steps.genealogy(model, tasks, options.limit)
    place = (frame.progress * 16).round() / 16
    columns = ["parents", "living", "ess", "texts"]
    mean = frame.groupby(["lam", place])[columns].mean().reset_index()
    return {"genealogy": (mean, figures.genealogy(mean))}


def _grid(name: str) -> Study:
    def run(options: argparse.Namespace) -> dict[str, Made]:
        with study.started(options, VALIDATION, options.limit) as (config, evaluate):
            frame = grids.measure(config, evaluate, name, options.out / name)
        made = {name: (frame, figures.GRIDS[name](frame))}
        if name == "resamplers":
            spread = grids.offspring_variance()
            made["offspring"] = (spread, figures.offspring(spread))
        return made

    return run


def _clock(options: argparse.Namespace) -> dict[str, Made]:
    model, tasks = _watched(options)
    frame = clock.measure(model, tasks, options.limit)
    return {"clock": (frame, figures.clock(frame))}


def _late(options: argparse.Namespace) -> dict[str, Made]:
    folder = options.out / "late-validation"
    with study.started(options, VALIDATION, options.limit) as (config, evaluate):
        late.choose(config, evaluate, folder)
    with study.started(options, "test", 3 * options.limit) as (config, evaluate):
        frame = late.measure(config, evaluate, folder / "tuned.json", options.out / "late")
    return {"late": (frame, figures.late(frame))}


def _oracle(options: argparse.Namespace) -> dict[str, Made]:
    records = oracle.measure(options.out / "oracle", options.limit)
    print("\n".join(oracle.table(records)))
    frame = oracle.by_passes(records)
    return {"oracle": (frame, figures.oracle(frame))}


STUDIES: Mapping[str, Study] = {
    "exact": _exact,
    "look_aheads": _look_aheads,
    "genealogy": _genealogy,
    **{name: _grid(name) for name in grids.GRIDS},
    "clock": _clock,
    "late": _late,
    "oracle": _oracle,
}


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    options.images.mkdir(parents=True, exist_ok=True)
    for name in options.studies:
        for stem, (frame, figure) in STUDIES[name](options).items():
            frame.round(4).to_csv(options.images / f"behaviour-{stem}.csv", index=False)
            figure.savefig(options.images / f"behaviour-{stem}.svg", metadata={"Date": None})
            print(f"{stem}\n{frame.round(3).to_string(index=False)}\n", flush=True)


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
