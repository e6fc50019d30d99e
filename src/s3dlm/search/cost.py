"""How many forward passes a run takes at most, as a number and as a formula for it.

T is the number of steps, N and b are particles and branching. Equal and finished answers are saved, and
not counted here. Where the model is its own judge (verifier='self'), every text that it reads is one
pass more; of a method that scores at every step that is each look-ahead of each child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3dlm.verifier.base import SELF

if TYPE_CHECKING:
    from s3dlm.settings import Settings

FORMULAS = {  # of ensembles; B is the number of blocks, L that of tokens
    "sweeps": "b·(1 + T·N)",
    "block_lengths": "5 + T·N·b",
    "prism": "1 + (T + 6)·N + 3·N",
    "order_token": "1 + T·N + B·N·N",
    "unmaskfork": "L·N",
    "vgb": "1 + 9·L·N",
}


def most_passes(settings: Settings, steps: int, starts: int = 1) -> int:
    """The most passes of all rounds in so many steps; an ensemble may have several starts."""
    size, rows = settings.size, settings.size * settings.children
    blocks = -(-settings.gen_length // settings.block_length)
    once = {
        # It narrows at most twice, and then forwards all again; a copy has four tokens more to fill.
        "prism": 1 + (steps + 6) * size,
        "order_token": 1 + steps * size + blocks * size * size,
        "vgb": 1 + 9 * settings.gen_length * size,
        "unmaskfork": settings.gen_length * size,  # where blocks do not share out evenly
    }.get(settings.row.ensemble, settings.sweeps * (starts + steps * rows))
    once *= 2 if settings.guidance else 1
    return (settings.rounds + 1) * (once + _most_judged(settings, steps))


def _most_judged(settings: Settings, steps: int) -> int:
    """The most texts that the model reads as judge in one round; a move may ask about all again."""
    if settings.verifier != SELF or "verifier" not in settings.active:
        return 0
    size, rows = settings.size, settings.size * settings.children
    if settings.row.ensemble in ("prism", "unmaskfork"):
        return 3 * size
    scored = {"never": 0, "at the end": rows, "every step": size + steps * rows}
    looks = settings.sweeps * settings.look_aheads
    return scored[settings.row.scored] * looks + 2 * size * bool(settings.rounds)


def formula(settings: Settings) -> str:
    """A formula for the most passes of a run in T steps; with the judging, where the method asks for it."""
    if settings.budget is not None:
        return str(settings.budget)
    plain = "1 + T" if settings.size * settings.children == 1 else "1 + T·N·b"
    once = FORMULAS.get(settings.row.ensemble, plain)
    return f"{settings.rounds + 1}·({once})" if settings.rounds else once
