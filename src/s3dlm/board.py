"""A search in the terminal: particles as rows, or as grids; hidden positions as blocks, scores as bars.

On a terminal the board is redrawn in place; anywhere else it becomes one plain line per step. It only
looks at events, so a recorded trace plays as well as a running search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from s3dlm.models.base import Model
from s3dlm.result import Result
from s3dlm.search.step import Step

HIDDEN = "░"
LEGEND = "░ masked  ■ end  ← parent  NFE forward passes  ESS effective sample size"
MOST_ROWS = 12

Piece = Callable[[int], str | None]  # None: not yet known


def pieces_of(model: Model) -> Piece:
    """Token id to text; None for the mask."""
    mask, decode = model.denoiser.mask_id, model.tokenizer.decode
    return lambda token: None if token == mask else decode([token])


def show(
    events: Iterable[Step | Result],
    piece: Piece,
    end_ids: frozenset[int] = frozenset(),
    *,
    console: Console | None = None,
    title: str = "",
    columns: int | None = None,
) -> Iterator[Step | Result]:
    """Draw events as they pass, and pass them on unchanged; tokens are a text, or with a number of
    `columns` the cells of a grid."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield from _lines(events, console)
        return
    with Live(console=console, auto_refresh=False) as live:
        for event in events:
            if isinstance(event, Step):
                picture = drawn(event, piece, end_ids, title, columns, console.width)
                live.update(picture, refresh=True)
            yield event


def _lines(events: Iterable[Step | Result], console: Console) -> Iterator[Step | Result]:
    for event in events:
        if isinstance(event, Step):
            scored = "" if np.isnan(event.score).all() else f"  best {np.nanmax(event.score):.3f}"
            console.print(
                f"step {event.index + 1}/{event.total}  NFE +{event.nfe}  ESS {event.ess:.1f}"
                f"  ancestors {event.unique_ancestors}  confidence {event.confidence.mean():.3f}"
                f"{scored}",
                highlight=False,
            )
        yield event


def _table(step: Step, piece: Piece, end_ids: frozenset[int]) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 1), show_header=True, header_style="dim")
    table.add_column("", justify="right", no_wrap=True, width=2)
    table.add_column("answer", ratio=1)
    for name, width in (("score", 12), ("conf", 5), ("from", 4)):
        table.add_column(name, justify="right", no_wrap=True, width=width)
    for number, child in enumerate(step.survivor[:MOST_ROWS].tolist(), 1):
        table.add_row(
            str(number),
            _canvas(step.tokens[child], piece, end_ids),
            _bar(float(step.score[child])),
            f"{step.confidence[child]:.2f}",
            "new" if step.parent[child] < 0 else f"← {int(step.parent[child]) + 1}",
        )
    if step.survivor.size > MOST_ROWS:
        table.add_row("", Text(f"… and {step.survivor.size - MOST_ROWS} more", "dim"), "", "", "")
    return table


def _grids(step: Step, piece: Piece, columns: int) -> RenderableType:
    """The particles side by side, each under its number and score."""
    return Columns(
        Text.assemble(
            f"{number:2} ",
            _bar(float(step.score[child])),
            "\n",
            _grid(step.tokens[child], piece, columns),
        )
        for number, child in enumerate(step.survivor[:MOST_ROWS].tolist(), 1)
    )


def _grid(tokens: np.ndarray, piece: Piece, columns: int) -> Text:
    """Cells row by row, with more room between boxes; each box is as wide as it is high."""
    text, box = Text(), round(columns**0.5)
    for cell, token in enumerate(tokens.tolist()):
        row, column = divmod(cell, columns)
        if column == 0:
            text.append("\n\n" if row % box == 0 and row else "\n")
        elif column % box == 0:
            text.append(" ")
        part = piece(token)
        text.append(HIDDEN if part is None else part, "grey42" if part is None else "bold")
        text.append(" ")
    return text


def drawn(
    step: Step, piece: Piece, end_ids: frozenset[int], title: str, columns: int | None, width: int
) -> RenderableType:
    """The board after one step."""
    body = _grids(step, piece, columns) if columns else _table(step, piece, end_ids)
    foot = Table.grid(padding=(0, 2))
    rounds = f"round {step.round + 1}, " if step.round else ""
    foot.add_row(
        ProgressBar(total=step.total, completed=step.index + 1, width=min(24, width // 4)),
        f"{rounds}step {step.index + 1}/{step.total}",
        f"NFE +{step.nfe}",
        f"ESS {step.ess:.1f} of {step.weight.size}",
        f"ancestors {step.unique_ancestors}",
    )
    legend = Text(LEGEND, "dim", overflow="ellipsis", no_wrap=True)
    return Panel(Group(body, Text(), foot, legend), title=title or None, border_style="cyan")


def _canvas(tokens: np.ndarray, piece: Piece, end_ids: frozenset[int]) -> Text:
    """Known tokens as text, unknown ones as blocks, nothing after a known end."""
    text = Text(overflow="fold")
    for token in tokens.tolist():
        if token in end_ids:
            text.append("■", "dim")
            break
        part = piece(token)
        if part is None:
            text.append(HIDDEN, "grey42")
        else:
            text.append("".join(c if c.isprintable() else " " for c in part))
    return text


def _bar(score: float) -> Text:
    if np.isnan(score):
        return Text("–", "dim")
    colour = "red" if score < 0.4 else "yellow" if score < 0.7 else "green"
    filled = round(score * 6)
    return Text.assemble(("▇" * filled, colour), ("▁" * (6 - filled), "grey23"), f" {score:.2f}")
