"""The table and the figure of a comparison: `python -m examples.antibody.report runs/antibody`.

Loops are what is drawn in every bootstrap, so intervals say how much another set of loops would change
a figure. Methods are compared on the same loops.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.antibody.compare import BUDGET, METHODS, OTHER, read

TITLES = {
    "greedy": "greedy",
    "vote": "best-of-K, vote",
    "verified": "verified best-of-K, until satisfied",
    "verified_batch": "verified best-of-K, one batch",
    "s3": "`s3`",
    "revise": "`revise`",
    "restarts": "`revise` with fresh samples alone",
    "moves_random": "re-masking, random residues",
    "moves": "re-masking, doubted residues",
    "verified_four": "verified best-of-K, until satisfied, four residues per step",
    "moves_four": "re-masking, four residues per step",
    "verified_one_step": "verified best-of-K, until satisfied, all residues in one step",
    "moves_one_step": "re-masking, all residues in one step",
}
BASE = "verified_batch"  # the better way to draw samples, which all are compared with
Floats = NDArray[np.float64]
Results = Mapping[str, Mapping[str, Any]]  # by loop


def results(folder: Path) -> dict[str, Results]:
    """Of every method one record per loop, the newest, with its pseudo-likelihood if it has one."""
    judged = {(one["loop"], one["text"]): one["pll"] for one in read(folder / "judged.jsonl")}
    found = {}
    for method in METHODS:
        records = read(folder / f"{method}.jsonl")
        if records:
            found[method] = {
                one["loop"]: {**one, "pll": judged.get((one["loop"], one["text"]))}
                for one in records
            }
    return found


def drawn(count: int, draws: int = 10_000) -> NDArray[np.int64]:
    """Bootstrap samples of loops, the same for all methods."""
    return np.random.default_rng(0).integers(0, count, size=(draws, count))


def interval(values: Floats, percent: bool = False) -> str:
    """Mean and 95 % interval."""
    if not values.size:
        return "–"
    low, high = np.quantile(values[drawn(values.size)].mean(axis=1), [0.025, 0.975])
    if percent:
        return f"{100 * values.mean():.0f} % ({100 * low:.0f}–{100 * high:.0f})"
    return f"{values.mean():.2f} ({low:.2f} to {high:.2f})"


def ratio(kept: Floats, base: Floats) -> str:
    """Share over share with its 95 % interval, over the same loops."""
    if not base.any():
        return "–"
    index = drawn(kept.size)
    over, under = kept[index].mean(axis=1), base[index].mean(axis=1)
    low, high = np.quantile(over / np.maximum(under, 1 / kept.size), [0.025, 0.975])
    return f"{kept.mean() / base.mean():.1f} ({low:.1f}–{high:.1f})"


def kept_within(found: Results, loops: Sequence[str], nfe: float = np.inf) -> Floats:
    """Which loops kept all rules within this many forward passes."""
    own = [found[name] for name in loops]
    return np.array([one["score"] >= 1 - 1e-9 and one["nfe"] <= nfe for one in own], np.float64)


def table(found: dict[str, Results], loops: Sequence[str], other: str) -> str:
    # Only loops that are judged for every method: else the methods would be judged on others.
    judged = [name for name in loops if all(own[name]["pll"] is not None for own in found.values())]
    likelihood = f"log-likelihood under {other}, {len(judged)} loops"
    lines = [
        f"| method | all rules | × {TITLES[BASE]} | NFE | {likelihood} |",
        "|---|---|---|---|---|",
    ]
    base = kept_within(found[BASE], loops)
    for method, own in found.items():
        kept = kept_within(own, loops)
        nfe = np.mean([own[name]["nfe"] for name in loops])
        pll = np.array([own[name]["pll"] for name in judged], dtype=np.float64)
        cells = [TITLES[method], interval(kept, percent=True), ratio(kept, base), f"{nfe:.1f}"]
        lines.append(f"| {' | '.join([*cells, interval(pll)])} |")
    return "\n".join(lines)


def draw(parts: Mapping[str, tuple[dict[str, Results], list[str]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "s3dlm"  # the same records give the same file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(parts), figsize=(4.6 * len(parts), 3.4), squeeze=False)
    nfe = np.arange(BUDGET + 1)
    for panel, (model, (found, loops)) in zip(panels[0], parts.items(), strict=True):
        for method in ("verified", "s3", "revise", "restarts", "moves_random", "moves"):
            if method in found:
                share = [100 * kept_within(found[method], loops, int(n)).mean() for n in nfe]
                panel.step(nfe, share, where="post", label=TITLES[method].replace("`", ""))
        if BASE in found:
            used = np.mean([found[BASE][name]["nfe"] for name in loops])
            kept = 100 * kept_within(found[BASE], loops).mean()
            panel.plot(used, kept, "ko", label=TITLES[BASE])
        panel.set(title=f"{model}, {len(loops)} loops", xlabel="NFE per loop", ylim=(0, 100))
    panels[0][0].set_ylabel("loops that keep all rules, %")
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="Table and figure of a comparison.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figure", type=Path, help="an SVG file")
    parser.add_argument("--tuning", action="store_true", help="the loops that were tuned on")
    given = parser.parse_args()
    parts = {}
    for model, other in OTHER.items():
        found = results(given.folder / (model + "-tuning" * given.tuning))
        if BASE not in found:
            continue
        # A method that is not through with all loops is left out, so that all see the same.
        longest = max(map(len, found.values()))
        found = {method: own for method, own in found.items() if len(own) == longest}
        loops = sorted(found[BASE])
        parts[model] = (found, loops)
        print(f"\n{model} fills {longest} loops\n\n{table(found, loops, other)}")
    if given.figure:
        draw(parts, given.figure)


if __name__ == "__main__":
    main()
