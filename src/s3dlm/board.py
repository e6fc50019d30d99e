"""A search in the terminal: particles as rows, or as grids; hidden positions as blocks, scores as bars.

On a terminal the board is redrawn in place; anywhere else it becomes one plain line per step. It only
looks at events, so a recorded trace plays as well as a running search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from s3dlm.models.base import Model
from s3dlm.result import Result
from s3dlm.search.step import Step

BLOCK, AGAIN = "░", "▒"
LEGEND = f"{BLOCK} hidden  {AGAIN} taken back  ■ end"
MOST_ROWS = 12
NARROW = 60  # columns; below, a row has no room for more than its text and score
STEPS_PER_SECOND = 8.0  # that an eye can follow
REMASKED = 6  # so many steps a picture of what a round takes back stays
PACED = 64  # so many steps are shown at a pace; the rest of a long search as it runs

Piece = Callable[[int], str | None]  # None: not yet known
Shown = Sequence[tuple[int, np.ndarray]]  # canvases by number, with what was taken back of each


def pieces_of(model: Model) -> Piece:
    """Token id to text; None for the mask."""
    mask, decode = model.denoiser.mask_id, model.tokenizer.decode
    return lambda token: None if token == mask else decode([token])


def draw_search(
    events: Iterable[Step | Result],
    piece: Piece,
    end_ids: frozenset[int] = frozenset(),
    *,
    console: Console | None = None,
    title: str = "",
    columns: int | None = None,
    pace: float = 0.0,
) -> Iterator[Step | Result]:
    """Draw events as they pass, and pass them on unchanged.

    Args:
        events: A search as it runs, or a recorded one.
        piece: The text of a token.
        end_ids: Tokens that end an answer.
        console: Where to draw; standard error by default.
        title: Stands above the board.
        columns: Of the grid whose cells the tokens are; None: they are a text.
        pace: The most pictures per second on a terminal, where the search does not wait; 0: any number.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield from _lines(events, console)
        return
    board, due, left = Board(piece, end_ids, title, columns, console.width), 0.0, PACED
    with Live(console=console, auto_refresh=False) as live:
        for event in _ahead(events) if pace else events:
            for picture in board.pictures(event):
                time.sleep(max(0.0, due - time.monotonic()) if pace else 0.0)
                live.update(picture, refresh=True)
                steps = min(left, 1 if board.last is event else REMASKED)  # longer before a step
                left -= steps
                due = time.monotonic() + (steps / pace if pace else 0.0)
            yield event


def _ahead(events: Iterable[Step | Result]) -> Iterator[Step | Result]:
    """The same events from a thread, so that a search does not wait for who looks at it."""
    queue = SimpleQueue[Step | Result | BaseException | None]()

    def run() -> None:
        try:
            for event in events:
                queue.put(event)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    Thread(target=run, daemon=True).start()
    while (event := queue.get()) is not None:
        if isinstance(event, BaseException):
            raise event
        yield event


def _lines(events: Iterable[Step | Result], console: Console) -> Iterator[Step | Result]:
    passes = 0
    for event in events:
        if isinstance(event, Step):
            passes += event.start_nfe + event.nfe
            best = (
                "" if np.isnan(event.score).all() else f", best score {np.nanmax(event.score):.3f}"
            )
            console.print(
                f"{_round(event)}step {event.index + 1} of {event.total}: {_passes(passes)}, "
                f"ESS {event.ess:.1f} of {event.weight.size}{best}",
                highlight=False,
            )
        yield event


def _round(step: Step) -> str:
    return f"round {step.round + 1}, " if step.round else ""


def _passes(count: int) -> str:
    return f"{count} pass{'es' * (count != 1)}"


@dataclass
class Board:
    """The pictures of one search, each drawn with what was seen before it."""

    piece: Piece
    end_ids: frozenset[int]
    title: str
    columns: int | None
    width: int
    passes: int = 0
    last: Step | None = None

    def pictures(self, event: Step | Result) -> Iterator[RenderableType]:
        """A picture of a step, before it one of what a round takes back; at the end a full bar."""
        if isinstance(event, Result):
            if self.last is not None:
                whole = self.last.survivor
                yield self._drawn(self.last, "done", whole, np.zeros_like(self.last.tokens), True)
            return
        before, moved = self.last, np.zeros(event.tokens.shape, bool)
        old = event.parent >= 0
        if before is not None and old.any():
            moved = self._moved(before, event)
            if event.round > before.round:
                what = f"round {event.round + 1} takes back what is red"
                rows = before.survivor[event.parent[old]]
                yield self._drawn(before, what, rows, moved[old])
        self.last, self.passes = event, self.passes + event.start_nfe + event.nfe
        name = f"{_round(event)}step {event.index + 1} of {event.total}"
        yield self._drawn(event, name, event.survivor, moved[event.survivor])

    def _moved(self, before: Step, step: Step) -> np.ndarray:
        """(children, length) the known tokens that a round or uniform noise has taken back, whether hidden
        now or drawn anew. Within a round a token that is drawn again as it was has not moved."""
        origin = before.survivor[step.parent]
        old, new = before.tokens[origin], step.tokens
        hidden = [token for token in np.unique(old).tolist() if self.piece(token) is None]
        moved = (old != new) & ~np.isin(old, hidden)
        if step.round > before.round:
            moved |= before.logp[origin] != step.logp
        return np.asarray(moved & (step.parent >= 0)[:, None])

    def _drawn(
        self, step: Step, name: str, rows: np.ndarray, moved: np.ndarray, done: bool = False
    ) -> RenderableType:
        """These canvases of a step, and what was taken back of each."""
        shown = list(zip(rows[:MOST_ROWS].tolist(), moved, strict=False))
        body = self._grids(step, shown) if self.columns else self._table(step, shown)
        more = step.survivor.size - MOST_ROWS
        notes = [name, _passes(self.passes), f"ESS {step.ess:.1f} of {step.weight.size}"]
        notes += [f"{more} more not shown"] if more > 0 else []
        full = 1.0 if done else np.mean([self._revealed(step.tokens[child]) for child, _ in shown])
        room = self.width - 4
        filled = round(room * float(full))
        bar = Text.assemble(
            ("━" * filled, "green" if done else "red"), ("━" * (room - filled), "grey23")
        )
        foot = Group(Text(), bar, Columns(map(Text, notes), padding=(0, 2)), Text(LEGEND, "dim"))
        return Panel(Group(body, foot), title=self.title or None, border_style="cyan")

    def _revealed(self, tokens: np.ndarray) -> float:
        """The share of a text, up to its end, that is known."""
        ends = np.flatnonzero(np.isin(tokens, list(self.end_ids)))
        text = tokens[: ends[0] if ends.size else None].tolist()
        return sum(self.piece(token) is not None for token in text) / max(len(text), 1)

    def _table(self, step: Step, shown: Shown) -> RenderableType:
        narrow = self.width < NARROW
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column("", justify="right", no_wrap=True, width=2)
        table.add_column("answer", ratio=1)
        others = [("score", 5)] if narrow else [("score", 12), ("conf", 5), ("from", 4)]
        for name, width in others:
            table.add_column(name, justify="right", no_wrap=True, width=width)
        for number, (child, moved) in enumerate(shown, 1):
            score, parent = float(step.score[child]), int(step.parent[child]) + 1
            cells: list[RenderableType] = [
                _bar(score, narrow),
                f"{step.confidence[child]:.2f}",
                f"← {parent}" if parent else "new",
            ]
            text = self._text(step.tokens[child], moved)
            table.add_row(str(number), text, *cells[: len(others)])
        return table

    def _text(self, tokens: np.ndarray, moved: np.ndarray) -> Text:
        """Known tokens as text, unknown ones as blocks, nothing after a known end."""
        text = Text(overflow="fold")
        for token, again in zip(tokens.tolist(), moved.tolist(), strict=True):
            if token in self.end_ids:
                text.append("■", "dim")
                break
            text.append(*self._mark(token, again))
        return text

    def _mark(self, token: int, again: bool, plain: str = "") -> tuple[str, str]:
        """A token as text with its style."""
        part = self.piece(token)
        if part is None:
            return (AGAIN, "red") if again else (BLOCK, "grey42")
        return "".join(c if c.isprintable() else " " for c in part), "red" if again else plain

    def _grids(self, step: Step, shown: Shown) -> RenderableType:
        """The particles side by side, each under its number and score."""
        return Columns(
            Text.assemble(
                f"{number:2} ", _bar(float(step.score[child])), "\n", self._grid(step.tokens[child], moved)
            )
            for number, (child, moved) in enumerate(shown, 1)
        )  # fmt: skip

    def _grid(self, tokens: np.ndarray, moved: np.ndarray) -> Text:
        """Cells row by row, with more room between boxes; each box is as wide as it is high."""
        assert self.columns is not None
        text, box = Text(), round(self.columns**0.5)
        for cell, token in enumerate(tokens.tolist()):
            row, column = divmod(cell, self.columns)
            if column == 0:
                text.append("\n\n" if row % box == 0 and row else "\n")
            elif column % box == 0:
                text.append(" ")
            text.append(*self._mark(token, bool(moved[cell]), "bold"))
            text.append(" ")
        return text


def _bar(score: float, narrow: bool = False) -> Text:
    if np.isnan(score):
        return Text("–", "dim")
    colour = "red" if score < 0.4 else "yellow" if score < 0.7 else "green"
    if narrow:
        return Text(f"{score:.2f}", colour)
    filled = round(score * 6)
    return Text.assemble(("▇" * filled, colour), ("▁" * (6 - filled), "grey23"), f" {score:.2f}")
