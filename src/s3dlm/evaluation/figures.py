"""The figures, drawn from flat tables; the only file that imports matplotlib.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every method also has its own
marker and line style.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from s3dlm.errors import MissingExtraError
from s3dlm.evaluation.compute_figure import log_ticks
from s3dlm.evaluation.records import write_atomic, writing
from s3dlm.evaluation.series import Table

LOOKS = {  # colour, marker, line style
    "greedy": ("#999999", "x", ":"),
    "baseline": ("#0072B2", "s", "--"),
    "best_of_k": ("#009E73", "^", "-."),
    "tilting": ("#CC79A7", "v", "-"),
    "look_ahead": ("#56B4E9", "D", "-"),
    "s3": ("#D55E00", "o", "-"),
    "twisted": ("#E69F00", "P", "-"),
    "best": ("#5B4FC9", "*", "-"),
    "s3_paper": ("#B8A600", "p", "-"),
    "verified_best_of_k": ("#8C564B", "h", "-"),
}
SPARE = ("#000000", "#7F7F7F", "#BCBD22")  # for other methods

# Fixed salt and no date: the same data gives the same file, byte for byte.
RC = {
    "svg.hashsalt": "s3dlm",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "figure.dpi": 100,
}


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def look(label: str) -> tuple[str, str, str]:
    """Colour, marker and line style of a method."""
    return LOOKS.get(label) or (SPARE[sum(label.encode()) % len(SPARE)], "o", "-")


Painter = Callable[[Any, Table, Mapping[str, str]], Any]  # (pyplot, table, titles) → figure


def draw(
    table: Table, titles: Mapping[str, str], folder: Path, painter: Painter | None = None
) -> str | None:
    """Draw one table as SVG and PNG, write its CSV, and return the SVG's text.

    None if the table has no rows, as in a run without a sweep.
    """
    if not table.rows:
        return None
    plt = _pyplot()
    write_atomic(folder / f"{table.name}.csv", table.to_csv())
    with writing(folder), plt.rc_context(RC):
        figure = (painter or PAINTERS[table.name])(plt, table, titles)
        for suffix in ("svg", "png"):
            metadata = {"Date": None} if suffix == "svg" else {"Software": None}
            path = folder / f"{table.name}.{suffix}"
            figure.savefig(path, bbox_inches="tight", metadata=metadata, dpi=150)
        plt.close(figure)
    return (folder / f"{table.name}.svg").read_text(encoding="utf-8")


def _panels(
    plt: Any, table: Table, titles: Mapping[str, str], rows: int = 1, **shared: Any
) -> tuple[Any, Any, list[str]]:
    """One column of axes per task, with its title."""
    tasks = [str(task) for task in table.values("task")]
    size = (2.9 * len(tasks) + 0.4, 2.6 * rows + 0.4)
    figure, axes = plt.subplots(
        rows, len(tasks), figsize=size, squeeze=False, layout="constrained", **shared
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        axis.set_title(titles.get(task, task), fontweight="bold")
    return figure, axes, tasks


def _column(rows: Sequence[Mapping[str, object]], name: str) -> np.ndarray:
    return np.array([float(cast("float", row[name])) for row in rows])


def _legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, below them."""
    found: dict[str, Any] = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    columns = min(len(found), 7) or 1
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def _accuracy_nfe(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    """A line per method and branching; N grows along it."""
    figure, axes, tasks = _panels(plt, table, titles)
    for axis, task in zip(axes[0], tasks, strict=True):
        for label in map(str, table.values("label")):
            ours = table.where(task=task, label=label)
            branchings = sorted({cast("int", row["branching"]) for row in ours})
            for number, branching in enumerate(branchings):
                rows = [row for row in ours if row["branching"] == branching]
                rows.sort(key=lambda row: cast("float", row["nfe"]))
                name = f"{label}, b = {branching}" if len(branchings) > 1 else label
                _with_error(axis, rows, "nfe", label, name, number)
        axis.set_xscale("log")
        axis.set_xlabel("NFE per problem")
        axis.set_xticks(log_ticks(*axis.get_xlim()))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(plt.NullLocator())
    axes[0][0].set_ylabel("accuracy (%)")
    _legend(figure, axes)
    return figure


def _with_error(
    axis: Any, rows: Sequence[Mapping[str, object]], x: str, label: str, name: str, number: int
) -> None:
    """Accuracy in per cent with its 95 % interval; `number` distinguishes lines of one method."""
    value, errors = _accuracy(rows)
    colour, marker, line = look(label)
    if number:
        marker, line = ("o", "s", "^", "D")[number % 4], ("-", "--", ":", "-.")[number % 4]
    axis.errorbar(
        _column(rows, x), value, yerr=errors, label=name, color=colour, marker=marker,
        markerfacecolor="white" if number else colour, markersize=4.5, linewidth=1.2,
        linestyle=line if len(rows) > 1 else "none", elinewidth=0.5, capsize=1.5,
    )  # fmt: skip


def _confidence(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles, sharey=True)
    for axis, task in zip(axes[0], tasks, strict=True):
        for label in map(str, table.values("label")):
            rows = table.where(task=task, label=label)
            colour, marker, line = look(label)
            x, y = 100 * _column(rows, "progress"), _column(rows, "confidence")
            every = max(1, len(rows) // 8)
            axis.plot(
                x, y, label=label, color=colour, linestyle=line, marker=marker, markersize=3.5,
                markevery=every, linewidth=1.3,
            )  # fmt: skip
        axis.set_xlabel("denoising progress (%)")
    axes[0][0].set_ylabel("mean top-1 confidence")
    _legend(figure, axes)
    return figure


def _accuracy(rows: Sequence[Mapping[str, object]]) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy in per cent, and the lengths of its error bars."""
    value, low, high = (100 * _column(rows, column) for column in ("accuracy", "low", "high"))
    return value, np.vstack([value - low, high - value])


def _block_length(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles)
    labels = [str(label) for label in table.values("label")]
    width = 0.8 / len(labels)
    for axis, task in zip(axes[0], tasks, strict=True):
        lengths = sorted({int(cast("int", row["block_length"])) for row in table.where(task=task)})
        for number, label in enumerate(labels):
            rows = table.where(task=task, label=label)
            at = np.array([lengths.index(int(cast("int", row["block_length"]))) for row in rows])
            value, errors = _accuracy(rows)
            hatch = ("", "//", "..", "xx", "\\\\", "--")[number % 6]
            axis.bar(
                at + (number - (len(labels) - 1) / 2) * width, value, width * 0.92, yerr=errors,
                label=label, color=look(label)[0], error_kw={"elinewidth": 0.6}, hatch=hatch,
                edgecolor="white",
            )  # fmt: skip
        axis.set_xticks(range(len(lengths)), [str(length) for length in lengths])
        axis.set_xlabel("block length")
        axis.grid(axis="x", visible=False)
    axes[0][0].set_ylabel("accuracy (%)")
    _legend(figure, axes)
    return figure


def _score_density(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles)
    names = [str(name) for name in table.values("progress")]
    shades = plt.get_cmap("viridis_r")(np.linspace(0.1, 0.95, max(len(names) - 1, 1)))
    for axis, task in zip(axes[0], tasks, strict=True):
        for number, name in enumerate(names):
            rows = table.where(task=task, progress=name)
            if name == "direct":
                style = {"color": "#555555", "linestyle": "--", "label": "without search"}
            else:
                style = {"color": shades[number], "label": f"s3 at {name} of denoising"}
            axis.plot(_column(rows, "score"), _column(rows, "density"), linewidth=1.3, **style)
        axis.set_xlabel("verifier score")
        axis.set_xlim(0, 1)
    axes[0][0].set_ylabel("density")
    _legend(figure, axes)
    return figure


def _score_heat(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles, sharey=True)
    image = None
    for axis, task in zip(axes[0], tasks, strict=True):
        rows = table.where(task=task)
        bins = len({row["score"] for row in rows})
        share = _column(rows, "share").reshape(-1, bins).T
        top = max(0.05, float(np.quantile(_column(list(table.where()), "share"), 0.99)))
        image = axis.imshow(
            share, origin="lower", aspect="auto", extent=(0.5, share.shape[1] + 0.5, 0.0, 1.0),
            cmap="cividis", vmin=0.0, vmax=top, interpolation="nearest",
        )  # fmt: skip
        axis.set_xlabel("denoising step")
        axis.grid(visible=False)
    axes[0][0].set_ylabel("verifier score")
    figure.colorbar(image, ax=axes, label="share of children", extend="max")
    return figure


def _density_quality(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    """Rows: the base p₀, the landscape (verifier and truth), the tilted target."""
    figure, axes, tasks = _panels(plt, table, titles, rows=3, sharex="col")
    for column, task in enumerate(tasks):
        rows = table.where(task=task)
        density, score = _column(rows, "log_density"), _column(rows, "score")
        low, high = np.quantile(density, [0.01, 1.0])
        edges = np.linspace(low, high + 1e-9, 25)
        middle = (edges[1:] + edges[:-1]) / 2
        count, _ = np.histogram(density, edges)
        _bars(axes[0][column], edges, density, _column(rows, "base"), "#0072B2")
        _landscape(axes[1][column], edges, middle, density, score, _column(rows, "correct"), count)
        axis = axes[2][column]
        _bars(axis, edges, density, _column(rows, "tilted"), "#D55E00")
        base, _ = np.histogram(density, edges, weights=_column(rows, "base"))
        axis.stairs(base / base.sum(), edges, color="#0072B2", linestyle="--", label="base")
        axis.set_xlabel("log-density per token")
    for axis, name in zip(
        axes[:, 0], ("base p₀: share", "score / accuracy", "tilted: share"), strict=True
    ):
        axis.set_ylabel(name)
    _legend(figure, axes)
    return figure


def _sampling_search(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    """Rows: samples without search, survivors of s3; the same axes, so that the shift is seen."""
    figure, axes, tasks = _panels(plt, table, titles, rows=2, sharex="col", sharey="col")
    for column, task in enumerate(tasks):
        for axis, how, colour in zip(
            axes[:, column], ("direct", "s3"), ("#0072B2", "#D55E00"), strict=True
        ):
            rows = table.where(task=task, how=how)
            density, score, right = (_column(rows, n) for n in ("log_density", "score", "correct"))
            faces = [colour if one == 1 else "none" for one in right]
            axis.scatter(
                density, score, s=12, facecolors=faces, edgecolors=colour, linewidths=0.6, alpha=0.5
            )
            axis.plot(
                density.mean(),
                score.mean(),
                "X",
                color="black",
                markersize=8,
                markeredgecolor="white",
            )
            axis.set_ylim(-0.03, 1.03)
        axes[1][column].set_xlabel("log-density per token")
    axes[0][0].set_ylabel("without search: score")
    axes[1][0].set_ylabel("s3: score")
    return figure


def _bars(axis: Any, edges: np.ndarray, x: np.ndarray, weight: np.ndarray, fill: str) -> None:
    share, _ = np.histogram(x, edges, weights=weight)
    axis.stairs(share / share.sum(), edges, fill=True, color=fill, alpha=0.75)


def _landscape(
    axis: Any,
    edges: np.ndarray,
    middle: np.ndarray,
    density: np.ndarray,
    score: np.ndarray,
    correct: np.ndarray,
    count: np.ndarray,
) -> None:
    """Mean verifier score and accuracy, where there are enough samples to average."""
    enough = count >= 5
    for values, label, style in (
        (score, "mean verifier score", {"color": "#009E73", "marker": "^"}),
        (correct, "accuracy", {"color": "#000000", "marker": "o", "linestyle": ":"}),
    ):
        total, _ = np.histogram(density, edges, weights=values)
        mean = total[enough] / count[enough]
        axis.plot(middle[enough], mean, label=label, markersize=3, linewidth=1.2, **style)
    axis.set_ylim(0, 1.03)


def _bound(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles)
    for axis, task in zip(axes[0], tasks, strict=True):
        rows = table.where(task=task)
        k = _column(rows, "k")
        bound, best = _column(rows, "bound"), _column(rows, "best_score")
        axis.plot(k, bound, "--", color="#000000", label="bound: mean + σ·√(2 ln K)")
        axis.plot(k, best, "-^", color="#009E73", label="best of K, measured")
        axis.set_xlabel("K")
    axes[0][0].set_ylabel("verifier score")
    _legend(figure, axes)
    return figure


def _reliability(plt: Any, table: Table, titles: Mapping[str, str]) -> Any:
    figure, axes, tasks = _panels(plt, table, titles, sharey=True)
    for axis, task in zip(axes[0], tasks, strict=True):
        axis.plot([0, 1], [0, 1], ":", color="#000000", linewidth=1)
        for label in table.values("label"):
            rows = table.where(task=task, label=label)
            if not rows:
                continue
            colour, marker, _ = look(str(label))
            count = _column(rows, "count")
            axis.plot(
                _column(rows, "p_correct"), _column(rows, "accuracy"), color=colour, alpha=0.5
            )
            axis.scatter(
                _column(rows, "p_correct"), _column(rows, "accuracy"), color=colour, marker=marker,
                s=6 + 60 * count / count.max(), label=str(label),
            )  # fmt: skip
        axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="p_correct")
    axes[0][0].set_ylabel("accuracy")
    _legend(figure, axes)
    return figure


PAINTERS: Mapping[str, Painter] = {
    "accuracy_nfe": _accuracy_nfe,
    "confidence": _confidence,
    "block_length": _block_length,
    "score_density": _score_density,
    "score_heat": _score_heat,
    "density_quality": _density_quality,
    "sampling_search": _sampling_search,
    "best_of_k_bound": _bound,
    "reliability": _reliability,
}
