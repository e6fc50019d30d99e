"""The figures of a report, drawn from data frames; the only file that imports matplotlib.

A figure is a function that paints a task's column of axes; `_figure` registers it with its words, which
are in assets/figures.toml.
"""

from __future__ import annotations

import io
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from s3dlm.evaluation.accuracy_chart import accuracy_over_nfe, in_per_cent, styles_of
from s3dlm.evaluation.records import write_atomic, writing

BASE, TILTED = "#0072B2", "#D55E00"

# Fixed salt and no date: the same data gives the same file, byte for byte.
RC = {
    "svg.hashsalt": "s3dlm", "svg.fonttype": "none", "font.size": 9, "font.family": "DejaVu Sans",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "legend.frameon": False, "figure.dpi": 100,
}  # fmt: skip
Paint = Callable[[Sequence[Any], pd.DataFrame, pd.DataFrame], Any]  # (axes, rows of a task, all)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a report: what is written about it, and how a task's column of axes is painted."""

    title: str
    caption: str
    x: str
    y: Sequence[str]  # of each row of axes
    paint: Paint
    shared: Mapping[str, Any] = field(default_factory=dict)

    def to_markdown(self, path: str) -> str:
        """Title, picture and caption."""
        return f"## {self.title}\n\n![{self.title}]({path})\n\n{self.caption}"


FIGURES: dict[str, Figure] = {}  # in the order of a report; `_figure` adds them
_WORDS = tomllib.loads((Path(__file__).parent / "assets" / "figures.toml").read_text("utf-8"))


def _figure(paint: Paint) -> Paint:
    name = paint.__name__.lstrip("_")
    FIGURES[name] = Figure(**_WORDS[name], paint=paint)
    return paint


def draw(name: str, frame: pd.DataFrame, titles: Mapping[str, str], folder: Path) -> str:
    """Draw one figure of a report and save it."""
    return save(lambda: paint(name, frame, titles), name, frame, folder)


def save(make: Callable[[], Canvas], name: str, frame: pd.DataFrame, folder: Path) -> str:
    """Write a figure as SVG and PNG, and its data as CSV; returns the SVG's text."""
    write_atomic(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
    with writing(folder), matplotlib.rc_context(RC):
        figure = make()
        figure.savefig(folder / f"{name}.png", bbox_inches="tight", metadata={"Software": None}, dpi=150)  # fmt: skip
        figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    return (folder / f"{name}.svg").read_text(encoding="utf-8")


def panel(frame: pd.DataFrame, titles: Mapping[str, str], task: str) -> str:
    """Accuracy over NFE on one task, as SVG text: a page puts such panels side by side."""
    text = io.StringIO()
    with matplotlib.rc_context(RC):
        figure = paint("accuracy_nfe", frame, titles, [task])
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def paint(
    name: str, frame: pd.DataFrame, titles: Mapping[str, str], some: Sequence[str] = ()
) -> Canvas:
    """A column of axes per task, of all or some, and one legend or colour bar for all."""
    about, tasks, image = FIGURES[name], list(some or frame.task.unique()), None
    size = (2.9 * len(tasks) + 0.4, 2.6 * len(about.y) + 0.4)
    figure = Canvas(figsize=size, layout="constrained")
    axes = figure.subplots(len(about.y), len(tasks), squeeze=False, **about.shared)
    for column, task in enumerate(tasks):
        image = about.paint(axes[:, column], frame[frame.task == task], frame)
        axes[0, column].set_title(titles.get(task, task), fontweight="bold")
        axes[-1, column].set_xlabel(about.x)
    for axis, label in zip(axes[:, 0], about.y, strict=True):
        axis.set_ylabel(label)
    if image is not None:
        figure.colorbar(image, ax=axes, label="share of children", extend="max")
    legend(figure, axes, min(7, 2 * len(tasks)))
    return figure


def legend(figure: Canvas, axes: Any, columns: int, **where: Any) -> None:
    """One legend for all panels, below them if nothing else is said."""
    handles: dict[str, Any] = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        where = {"loc": "outside lower center", "ncols": min(len(handles), columns), **where}
        figure.legend(handles.values(), handles.keys(), **where)


@_figure
def _accuracy_nfe(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    accuracy_over_nfe(axes[0], rows, styles_of(whole.label))


@_figure
def _confidence(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    styles = styles_of(whole.label)
    for label, line in rows.groupby("label", sort=False):
        every = max(1, len(line) // 8)
        how = {**styles[label], "markersize": 3.5, "markevery": every, "linewidth": 1.3}
        axes[0].plot(100 * line.progress, line.confidence, label=label, **how)


@_figure
def _block_length(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    styles, lengths = styles_of(whole.label), sorted(rows.block_length.unique())
    labels = list(styles)
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        bars = rows[rows.label == label]
        value, errors = in_per_cent(bars)
        at = np.array([lengths.index(length) for length in bars.block_length])
        axes[0].bar(
            at + (number - (len(labels) - 1) / 2) * width, value, width * 0.92, yerr=errors,
            label=label, color=styles[label]["color"], error_kw={"elinewidth": 0.6},
            hatch=("", "//", "..", "xx", "\\\\", "--")[number % 6], edgecolor="white",
        )  # fmt: skip
    axes[0].set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes[0].grid(axis="x", visible=False)


@_figure
def _score_density(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    names = list(whole.progress.unique())
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 0.95, max(len(names) - 1, 1)))
    for name, line in rows.groupby("progress", sort=False):
        how = {"color": "#555555", "linestyle": "--", "label": "without search"}
        if name != "direct":
            how = {"color": shades[names.index(name)], "label": f"s3 at {name} of denoising"}
        axes[0].plot(line.score, line.density, linewidth=1.3, **how)
    axes[0].set_xlim(0, 1)


@_figure
def _score_heat(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> Any:
    share = rows.pivot(index="score", columns="step", values="share").to_numpy()
    axes[0].grid(visible=False)
    return axes[0].imshow(
        share, origin="lower", aspect="auto", extent=(0.5, share.shape[1] + 0.5, 0.0, 1.0),
        cmap="cividis", vmin=0.0, vmax=max(0.05, whole.share.quantile(0.99)),
        interpolation="nearest",
    )  # fmt: skip


@_figure
def _density_quality(axes: Sequence[Any], rows: pd.DataFrame, _: pd.DataFrame) -> None:
    """Rows: the base p₀, the landscape (verifier and truth), the tilted target."""
    low, high = np.quantile(rows.log_density, [0.01, 1.0])
    edges = np.linspace(low, high + 1e-9, 25)

    def histogram(weights: pd.Series | None = None) -> np.ndarray:
        return np.histogram(rows.log_density, edges, weights=weights)[0]

    base, tilted, count = histogram(rows.base), histogram(rows.tilted), histogram()
    axes[0].stairs(base / base.sum(), edges, fill=True, color=BASE, alpha=0.75)
    axes[2].stairs(tilted / tilted.sum(), edges, fill=True, color=TILTED, alpha=0.75)
    axes[2].stairs(base / base.sum(), edges, color=BASE, linestyle="--", label="base")
    enough = count >= 5  # samples to average
    middle = ((edges[1:] + edges[:-1]) / 2)[enough]
    for values, label, style in (
        (rows.score, "mean verifier score", {"color": "#009E73", "marker": "^"}),
        (rows.correct, "accuracy", {"color": "#000000", "marker": "o", "linestyle": ":"}),
    ):
        mean = histogram(values)[enough] / count[enough]
        axes[1].plot(middle, mean, label=label, markersize=3, linewidth=1.2, **style)
    axes[1].set_ylim(0, 1.03)


@_figure
def _sampling_search(axes: Sequence[Any], rows: pd.DataFrame, _: pd.DataFrame) -> None:
    """Rows: samples without search, survivors of s3; the same axes, so that the shift is seen."""
    for axis, how, colour in zip(axes, ("direct", "s3"), (BASE, TILTED), strict=True):
        points = rows[rows.how == how]
        right, style = points.correct == 1, {"edgecolors": colour, "linewidths": 0.6, "s": 12}
        # Two calls: an alpha for all points at once would also fill the empty ones.
        for some, face in ((points[~right], "none"), (points[right], colour)):
            axis.scatter(some.log_density, some.score, facecolors=face, alpha=0.5, **style)
        cross = {"color": "black", "markersize": 8, "markeredgecolor": "white"}
        axis.plot(points.log_density.mean(), points.score.mean(), "X", **cross)
        axis.set_ylim(-0.03, 1.03)


@_figure
def _best_of_k_bound(axes: Sequence[Any], rows: pd.DataFrame, _: pd.DataFrame) -> None:
    axes[0].plot(rows.k, rows.bound, "--", color="#000000", label="bound: mean + σ·√(2 ln K)")
    axes[0].plot(rows.k, rows.best_score, "-^", color="#009E73", label="best of K, measured")


@_figure
def _reliability(axes: Sequence[Any], rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    styles = styles_of(whole.label)
    axes[0].plot([0, 1], [0, 1], ":", color="#000000", linewidth=1)
    for label, bins in rows.groupby("label", sort=False):
        how, size = styles[label], 6 + 60 * bins["count"] / bins["count"].max()
        axes[0].plot(bins.p_correct, bins.accuracy, color=how["color"], alpha=0.5)
        style = {"color": how["color"], "marker": how["marker"], "label": label}
        axes[0].scatter(bins.p_correct, bins.accuracy, s=size, **style)
    axes[0].set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
