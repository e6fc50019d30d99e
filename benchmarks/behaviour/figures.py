"""The figures of docs/appendix/behaviour.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from s3dlm.evaluation.figures import RC

COLOURS = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00")
MARKERS = "sovD^P"
Draw = Callable[[pd.DataFrame], Figure]


def _drawn(width: float, height: float, columns: int = 1) -> Callable[[Callable[..., None]], Draw]:
    """A function that paints axes, as one that makes a figure in the report's style."""

    def decorate(paint: Callable[..., None]) -> Draw:
        @functools.wraps(paint)
        def draw(frame: pd.DataFrame) -> Figure:
            with matplotlib.rc_context(RC):
                figure = Figure(figsize=(width, height), layout="constrained")
                axes = np.ravel(figure.subplots(1, columns))
                paint(frame, *axes)
            return figure

        return draw

    return decorate


def _lines(axis: Any, frame: pd.DataFrame, by: str, x: str, y: str, name: str = "{}") -> None:
    for at, (key, rows) in enumerate(frame.groupby(by, sort=False)):
        axis.plot(rows[x], rows[y], color=COLOURS[at], marker=MARKERS[at], markersize=4,
                  linewidth=1.3, label=name.format(key))  # fmt: skip


@_drawn(9.0, 3.2, 3)
def distances(frame: pd.DataFrame, *axes: Any) -> None:
    titles = {"particles": "particles N (λ = 3, 3 steps)", "lam": "λ (N = 16, 3 steps)",
              "steps": "denoising steps (λ = 3, N = 16)"}  # fmt: skip
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        _lines(axis, frame[frame["axis"] == name], "method", "value", "distance")
        axis.set(xlabel=title, ylim=(0, None), xscale="linear" if name == "steps" else "log")
        axis.set_xticks(sorted(frame[frame["axis"] == name].value.unique()), minor=False)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
    axes[0].set_ylabel("total variation from p·exp(λf)")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)


@_drawn(6.4, 3.0, 2)
def potentials(frame: pd.DataFrame, error: Any, correlation: Any) -> None:
    _lines(error, frame, "lam", "step", "error", "λ = {:g}")
    _lines(correlation, frame, "lam", "step", "correlation", "λ = {:g}")
    error.set(ylabel="RMS of log h − λ·f(look-ahead)", xlabel="steps done")
    correlation.set(ylabel="correlation with log h", xlabel="steps done", ylim=(0, 1.03))
    for axis in (error, correlation):
        axis.set_xticks(range(4))
    error.legend()


@_drawn(7.6, 3.2, 2)
def look_aheads(frame: pd.DataFrame, right: Any, auc: Any) -> None:
    names = {"schedule": "schedule", "threshold": "adaptive reveal"}
    first = frame[frame.verifier == frame.verifier.iloc[0]]
    for at, (reveal, name) in enumerate(names.items()):
        rows = first[first.reveal == reveal]
        right.plot(100 * rows.progress, 100 * rows.right, color=COLOURS[at], marker=MARKERS[at],
                   markersize=4, label=name)  # fmt: skip
        for style, (verifier, rows) in zip(("-", "--"), frame.groupby("verifier"), strict=True):
            rows = rows[rows.reveal == reveal]
            auc.plot(100 * rows.progress, rows.auc, color=COLOURS[at], marker=MARKERS[at],
                     markersize=4, linestyle=style, label=f"{verifier}, {name}")  # fmt: skip
    auc.axhline(0.5, color="#999999", linewidth=0.8)
    right.set(xlabel="steps done (%)", ylabel="look-aheads that are right (%)", ylim=(0, 100))
    auc.set(xlabel="steps done (%)", ylabel="AUC for the final answer, within a problem",
            ylim=(0.4, 1.02))  # fmt: skip
    right.legend()
    auc.legend(fontsize=7)


@_drawn(9.6, 2.9, 3)
def genealogy(frame: pd.DataFrame, *axes: Any) -> None:
    titles = {"living": "particles with a descendant at the end", "ess": "ESS as a share of N·b",
              "texts": "different survivors of 8"}  # fmt: skip
    frame = frame.assign(progress=100 * frame.progress)
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        _lines(axis, frame, "lam", "progress", name, "λ = {:g}")
        axis.set(xlabel="steps done (%)", title=title, ylim=(0, None))
    axes[1].legend(loc="lower left")


def _map(axis: Any, frame: pd.DataFrame, row: str, column: str, labels: tuple[str, str]) -> None:
    table = frame.pivot(index=row, columns=column, values="accuracy") * 100
    nfe = frame.pivot(index=row, columns=column, values="nfe")
    axis.imshow(table, cmap="viridis", aspect="auto", origin="lower")
    axis.grid(visible=False)
    middle = (table.to_numpy().max() + table.to_numpy().min()) / 2
    for (y, x), value in np.ndenumerate(table.to_numpy()):
        axis.text(x, y, f"{value:.1f}\n@ {nfe.iloc[y, x]:.0f}", ha="center", va="center",
                  fontsize=8, color="white" if value < middle else "black")  # fmt: skip
    axis.set_xticks(range(table.shape[1]), [f"{v:g}" for v in table.columns])
    axis.set_yticks(range(table.shape[0]), [f"{v:g}" for v in table.index])
    axis.set(ylabel=labels[0], xlabel=labels[1])


@_drawn(5.4, 3.6)
def lam_temperature(frame: pd.DataFrame, axis: Any) -> None:
    _map(axis, frame, "lam", "temperature", ("λ", "temperature"))


@_drawn(5.4, 2.7)
def sizes(frame: pd.DataFrame, axis: Any) -> None:
    _map(axis, frame, "branching", "particles", ("children b", "particles N"))


@_drawn(5.4, 3.0)
def resamplers(frame: pd.DataFrame, axis: Any) -> None:
    _lines(axis, frame, "resampling", "lam", "accuracy")
    axis.set(xlabel="λ", ylabel="accuracy", xscale="log")
    axis.legend(ncols=2)


@_drawn(5.4, 3.0)
def offspring(frame: pd.DataFrame, axis: Any) -> None:
    _lines(axis, frame, "resampling", "lam", "variance")
    axis.set(xlabel="λ", ylabel="variance of offspring, summed", xscale="log", ylim=(0, None))
    axis.legend(ncols=2)


@_drawn(6.4, 3.2)
def clock(frame: pd.DataFrame, axis: Any) -> None:
    left = np.zeros(len(frame))
    parts = ("forward", "sampling", "verifier")
    for name, colour in zip((*parts, "rest"), COLOURS[1:], strict=False):
        rest = frame.seconds - frame[list(parts)].sum(axis=1)
        width = 1000 * (rest.clip(lower=0) if name == "rest" else frame[name])
        axis.barh(frame.method, width, left=left, color=colour, label=name)
        left = left + width.to_numpy()
    for y, (end, accuracy) in enumerate(zip(left, frame.accuracy, strict=True)):
        axis.text(end, y, f" {100 * accuracy:.0f} %", va="center", fontsize=8)
    axis.set(xlabel="milliseconds per problem, batched")
    axis.invert_yaxis()
    axis.margins(x=0.1)
    axis.legend()


@_drawn(6.0, 3.2)
def late(frame: pd.DataFrame, axis: Any) -> None:
    for at, row in enumerate(frame.itertuples()):
        verified, value = "verified" in row.method, 100 * row.accuracy
        axis.errorbar(value, at, xerr=[[value - 100 * row.low], [100 * row.high - value]],
                      color=COLOURS[1 if verified else 0], marker="o", capsize=2)  # fmt: skip
        axis.text(100 * row.high, at, f"  {value:.1f} @ {row.nfe:.0f}", va="center", fontsize=8)
    axis.set_yticks(range(len(frame)), frame.method)
    axis.set(xlabel="accuracy (%) with 95 % interval, mean of the tasks")
    axis.invert_yaxis()
    axis.margins(x=0.15)


@_drawn(6.0, 3.2)
def oracle(frame: pd.DataFrame, axis: Any) -> None:
    _lines(axis, frame.assign(solved=100 * frame.solved), "row", "within", "solved")
    axis.set(xlabel="forward passes at most", ylabel="solved (%)")
    axis.legend(fontsize=8)


GRIDS: Mapping[str, Draw] = {
    "lam_temperature": lam_temperature,
    "sizes": sizes,
    "resamplers": resamplers,
}
