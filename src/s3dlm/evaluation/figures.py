"""The five figures of a report, drawn from data frames; the only file that imports matplotlib.

A figure has rows of axes and a column per task. A row names its data frame and paints a task's axes.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from s3dlm.evaluation.records import write_atomic
from s3dlm.inputs import writing

# Okabe and Ito's colours, which colour-blind readers can tell apart, with a marker and a line style.
LOOKS = {
    "greedy": ("#999999", "x", ":"),
    "baseline": ("#0072B2", "s", "--"),
    "best_of_k": ("#009E73", "^", "-."),
    "tilting": ("#CC79A7", "v", "-"),
    "top_n": ("#56B4E9", "D", "-"),
    "s3": ("#D55E00", "o", "-"),
    "twisted": ("#E69F00", "P", "-"),
    "revise": ("#5B4FC9", "*", "-"),
    "s3_paper": ("#B8A600", "p", "-"),
    "verified_best_of_k": ("#8C564B", "h", "-"),
}
UNNAMED = ("#000000", "o", "-")
DRAWN = {"markersize": 4.5, "linewidth": 1.2, "elinewidth": 0.5, "capsize": 1.5}
DIRECT, SEARCHED = LOOKS["baseline"][0], LOOKS["s3"][0]
SHADED = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the denoising: whose scores are a line
WIDEST = 11.4  # inches, what a page has room for

# Fixed salt and no date: the same data gives the same file, byte for byte.
RC = {
    "svg.hashsalt": "s3dlm", "svg.fonttype": "none", "font.size": 9, "font.family": "DejaVu Sans",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "legend.frameon": False, "figure.dpi": 100,
}  # fmt: skip
Frames = Mapping[str, pd.DataFrame]
Styles = Mapping[str, Mapping[str, Any]]  # how matplotlib draws each label
Paint = Callable[[Any, pd.DataFrame, pd.DataFrame], Any]  # (axes, rows of a task, all rows)


@dataclass(frozen=True, slots=True)
class Panels:
    """A row of axes: the name of its data, labels, and how a task is painted."""

    data: str
    x: str
    y: str
    paint: Paint


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a report."""

    title: str
    caption: str
    rows: Sequence[Panels]
    shared: Mapping[str, Any] = field(default_factory=dict)  # axes, as matplotlib's subplots says
    panel: tuple[float, float] = (2.9, 2.6)  # inches

    def to_markdown(self, path: str) -> str:
        """Title, picture and caption."""
        return f"## {self.title}\n\n![{self.title}]({path})\n\n{self.caption}"


def draw(name: str, data: Frames, titles: Mapping[str, str], folder: Path) -> str | None:
    """Draw one figure of a report and save it; None if there are no data for it."""
    rows = [row for row in FIGURES[name].rows if not data[row.data].empty]
    frames = {row.data: data[row.data] for row in rows}
    return save(lambda: paint(FIGURES[name], rows, data, titles), name, frames, folder) if rows else None  # fmt: skip


def save(make: Callable[[], Canvas], name: str, data: Frames, folder: Path) -> str:
    """Write a figure as SVG and PNG, and its data as CSV; returns the SVG's text."""
    for key, frame in data.items():
        write_atomic(folder / f"{key}.csv", frame.to_csv(index=False, float_format="%.6g"))
    with writing(folder), matplotlib.rc_context(RC):
        figure, text = make(), io.StringIO()
        if layout := figure.get_layout_engine():
            layout.execute(figure)  # once for both files
        figure.set_layout_engine("none")
        figure.savefig(folder / f"{name}.png", metadata={"Software": None}, dpi=150)
        figure.savefig(text, format="svg", metadata={"Date": None})
    write_atomic(folder / f"{name}.svg", text.getvalue())
    return text.getvalue()


def paint(about: Figure, rows: Sequence[Panels], data: Frames, titles: Mapping[str, str]) -> Canvas:
    """A column of axes per task, and one legend or colour bar for all."""
    tasks = list(dict.fromkeys(task for row in rows for task in data[row.data].task))
    width, height = about.panel
    width = min(width, (WIDEST - 0.4) / len(tasks))
    size = (width * len(tasks) + 0.4, height * len(rows) + 0.4)
    figure, image = Canvas(figsize=size, layout="constrained"), None
    axes = figure.subplots(len(rows), len(tasks), squeeze=False, **about.shared)
    for line, row in zip(axes, rows, strict=True):
        whole = data[row.data]
        for axis, task in zip(line, tasks, strict=True):
            some = whole[whole.task == task]
            drawn = None if some.empty else row.paint(axis, some, whole)
            image = drawn or image
            axis.set_xlabel(row.x if "sharex" not in about.shared or row is rows[-1] else "")
        line[0].set_ylabel(row.y)
        if image is not None:
            figure.colorbar(image, ax=list(line), label="share of children", extend="max")
            image = None
    for axis, task in zip(axes[0], tasks, strict=True):
        axis.set_title(titles.get(task, task), fontweight="bold")
    legend(figure, axes, max(2, int(size[0] // 2)))
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


def styles_of(labels: Iterable[str]) -> Styles:
    """Colour, marker and line style: a method's own, else one that no method of the figure has."""
    distinct = list(dict.fromkeys(labels))
    spare = itertools.cycle([LOOKS[name] for name in LOOKS if name not in distinct] or [UNNAMED])
    looks = {label: LOOKS.get(label) or next(spare) for label in distinct}
    names = ("color", "marker", "linestyle")
    return {label: dict(zip(names, look, strict=True)) for label, look in looks.items()}


def accuracy_over(axis: Any, rows: pd.DataFrame, styles: Styles, x: str, bars: bool = True) -> None:
    """The one drawing of accuracy: a line per label, and per branching if there are several."""
    for label, ours in rows.groupby("label", sort=False):
        lines = list(ours.groupby("branching")) if "branching" in ours else [(1, ours)]
        for number, (branching, line) in enumerate(lines):
            line = line.sort_values(x)
            how = {**DRAWN, **styles[label]}
            if number:  # lines of one method differ in marker and dashes
                how |= {"marker": "os^D"[number % 4], "markerfacecolor": "white"}
                how["linestyle"] = ("-", "--", ":", "-.")[number % 4]
            if len(line) == 1:
                how["linestyle"] = "none"
            value, low, high = (100 * line[column] for column in ("accuracy", "low", "high"))
            errors = np.vstack([value - low, high - value]) if bars else None
            name = f"{label}, b = {branching}" if len(lines) > 1 else label
            axis.errorbar(line[x], value, yerr=errors, label=name, **how)
    axis.set_xscale("log")


def accuracy_over_nfe(axis: Any, rows: pd.DataFrame, styles: Styles, bars: bool = True) -> None:
    """Accuracy over forward passes, with a few round numbers of them."""
    accuracy_over(axis, rows, styles, "nfe", bars)
    low, high = axis.dataLim.intervalx
    digits = 1 if high > 3 * low else 2  # few round numbers, which have room in the narrowest panel
    ticks = {float(f"{nfe:.{digits}g}") for nfe in np.geomspace(low, high, 4)}
    axis.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axis.minorticks_off()


def _accuracy_nfe(axis: Any, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    accuracy_over_nfe(axis, rows, styles_of(whole.label))


def _confidence(axis: Any, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    styles = styles_of(whole.label)
    for label, line in rows.groupby("label", sort=False):
        every = max(1, len(line) // 8)
        how = {**styles[label], "markersize": 3.5, "markevery": every, "linewidth": 1.3}
        axis.plot(100 * line.progress, line.confidence, label=label, **how)


def _block_length(axis: Any, rows: pd.DataFrame, whole: pd.DataFrame) -> None:
    accuracy_over(axis, rows, styles_of(whole.label), "block_length")
    lengths = sorted(whole.block_length.unique())
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()


def _score_shares(axis: Any, rows: pd.DataFrame, _: pd.DataFrame) -> None:
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 0.95, len(SHADED)))
    for progress, shade in zip(SHADED, shades, strict=True):
        line = rows[rows.progress == progress]
        axis.plot(
            line.score, line.share, color=shade, label=f"s3 at {100 * progress:g} % of denoising"
        )
    line = rows[rows.progress.isna()]
    axis.plot(line.score, line.share, color="#555555", linestyle="--", label="without search")


def _score_heat(axis: Any, rows: pd.DataFrame, whole: pd.DataFrame) -> Any:
    share = rows.dropna().pivot(index="score", columns="progress", values="share").to_numpy()
    axis.grid(visible=False)
    return axis.imshow(
        share, origin="lower", aspect="auto", extent=(0, 100, 0, 1), cmap="cividis", vmin=0.0,
        vmax=max(0.05, whole.share.quantile(0.99)), interpolation="nearest",
    )  # fmt: skip


def _binned(rows: pd.DataFrame) -> tuple[np.ndarray, Callable[..., np.ndarray]]:
    """Edges over the log-density of direct samples, and their histogram by some weights."""
    direct = rows[rows.how == "direct"]
    low, high = np.quantile(direct.log_density, [0.01, 1.0])
    edges = np.linspace(low, high + 1e-9, 25)

    def histogram(column: str | None = None) -> np.ndarray:
        weights = None if column is None else direct[column]
        return np.histogram(direct.log_density, edges, weights=weights)[0]

    return edges, histogram


def _tilted(axis: Any, rows: pd.DataFrame, _: pd.DataFrame) -> None:
    edges, histogram = _binned(rows)
    base, tilted = histogram("base"), histogram("tilted")
    axis.stairs(base / base.sum(), edges, fill=True, color=DIRECT, alpha=0.5, label="base p₀")
    axis.stairs(tilted / tilted.sum(), edges, color=SEARCHED, label="tilted by exp(λ·score)")


def _landscape(axis: Any, rows: pd.DataFrame, _: pd.DataFrame) -> None:
    edges, histogram = _binned(rows)
    count = histogram()
    enough = count >= 5  # samples to average
    middle = ((edges[1:] + edges[:-1]) / 2)[enough]
    for column, label, style in (
        ("score", "mean verifier score", {"color": "#009E73", "marker": "^"}),
        ("correct", "accuracy", {"color": "#000000", "marker": "o", "linestyle": ":"}),
    ):
        mean = histogram(column)[enough] / count[enough]
        axis.plot(middle, mean, label=label, markersize=3, linewidth=1.2, **style)
    axis.set_ylim(0, 1.03)


def _finished(axis: Any, rows: pd.DataFrame, _: pd.DataFrame) -> None:
    """Finished texts as points; those that are right are filled, the cross is their mean."""
    for how, colour, label in (("direct", DIRECT, "without search"), ("s3", SEARCHED, "s3")):
        points = rows[rows.how == how]
        right, style = points.correct == 1, {"edgecolors": colour, "linewidths": 0.6, "s": 12}
        # Two calls: an alpha for all points at once would also fill the empty ones.
        axis.scatter(*_places(points[~right]), facecolors="none", alpha=0.5, **style)
        axis.scatter(*_places(points[right]), facecolors=colour, alpha=0.5, label=label, **style)
        mean = points.log_density.mean(), points.score.mean()
        axis.plot(*mean, "X", color=colour, markersize=8, markeredgecolor="black")
    axis.set_ylim(-0.03, 1.03)


def _places(points: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return points.log_density, points.score


_NFE, _ACCURACY, _DENSITY = "forward passes per problem", "accuracy (%)", "log-density per token"
FIGURES = {  # in the order of a report
    "mean": Figure(
        "Accuracy against compute",
        "Accuracy, the mean of the tasks, over forward passes per problem, with 95 % intervals; up "
        "and to the left is better.",
        [Panels("mean", _NFE, _ACCURACY, _accuracy_nfe)],
        panel=(4.6, 3.1),
    ),
    "scaling": Figure(
        "Accuracy and confidence on every task (the paper's Figure 3)",
        "Top: accuracy with 95 % intervals over passes for every (N, b) of the run, on the problems that all of "
        "them share. Bottom: mean probability of the answer's tokens at every step: for revealed tokens "
        "at the step that revealed them, for masked ones in the current block that of the best token.",
        [
            Panels("accuracy_nfe", _NFE, _ACCURACY, _accuracy_nfe),
            Panels("confidence", "denoising progress (%)", "mean top-1 confidence", _confidence),
        ],
    ),
    "block_length": Figure(
        "Accuracy over block length (the paper's Figure 4)",
        "Accuracy with 95 % intervals at the main budget for every block length of the run.",
        [Panels("block_length", "block length", _ACCURACY, _block_length)],
    ),
    "density": Figure(
        "Density and quality (the paper's Figure 1)",
        "Finished texts by the model's log-density. Top: where samples without search lie, and the target "
        "tilted by exp(λ·score) within each problem. Middle: mean verifier score and accuracy there. "
        "Bottom: each text with its score, filled if it is right; crosses are means.",
        [
            Panels("texts", _DENSITY, "share", _tilted),
            Panels("texts", _DENSITY, "score / accuracy", _landscape),
            Panels("texts", _DENSITY, "score", _finished),
        ],
        {"sharex": "col"},
        (2.9, 1.9),
    ),
    "scores": Figure(
        "Verifier scores along the search (the paper's Figures 1(f) and 5)",
        "Top: shares of s3's children in each band of scores at five points of the search; dashed: finished "
        "samples without search. Bottom: the same, from the first step to the last.",
        [
            Panels("scores", "verifier score", "share", _score_shares),
            Panels("scores", "denoising progress (%)", "verifier score", _score_heat),
        ],
    ),
}  # fmt: skip
