"""MDM-VGB: walks that reveal tokens and mask them again, by what the verifier says of partial texts.

docs/method.md says what differs from the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from s3dlm.diffusion.published import Crew, published
from s3dlm.diffusion.whole import WholeDraws
from s3dlm.errors import SettingsError
from s3dlm.search.particles import Canvas, occurrence
from s3dlm.search.step import Searching

PLACES, TOKENS, BACK = 8, 8, 8  # masked positions and tokens of each that lie ahead; ways back
LONGEST = 8  # moves per position, after which a walk only goes ahead
LEAST = 1e-4  # the value of a hopeless text, so that there is always a way


@dataclass(slots=True)
class Moves:
    """Canvases that may follow one, and how much each weighs."""

    canvas: list[Canvas] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)


@published
def vgb(crew: Crew) -> Searching[None]:
    """MDM-VGB with momentum: N walks. Ahead lie up to eight tokens for each of the eight surest masked
    positions, weighed by the value of the text that has it; back lie eight known positions, weighed by the
    value of the text as it is. A walk turns round when the other direction weighs more."""
    setup, size = crew.setup, crew.setup.settings.size
    if not setup.scorer.verifier.reads_partial:
        name = setup.scorer.verifier.name or type(setup.scorer.verifier).__name__
        raise SettingsError(
            f"method='vgb' walks by the score of partial texts, and verifier {name!r} reads none; choose "
            "verifier='plus', or give yours a method `score_partial`"
        )
    process = crew.process = WholeDraws.of(crew.process, draws=TOKENS * size)
    yield from crew.begin(size)
    blanks = int((crew.canvas.tokens[0] == process.mask_id).sum())
    enough = setup.scorer.verifier.satisfied_at
    onward, ended = np.ones(size, dtype=bool), np.zeros(size, dtype=bool)
    for move in range((LONGEST + 1) * blanks):
        late, everyone = move >= LONGEST * blanks, np.arange(size)
        turns = occurrence(crew.prediction.row)  # equal canvases draw for themselves
        ways = [_moves(crew, row, turns[row]) for row in range(size)]
        texts = [canvas for ahead, _ in ways for canvas in ahead.canvas]
        judged = np.concatenate([crew.canvas.tokens, *(canvas.tokens for canvas in texts)])
        values = np.maximum((yield from setup.scorer.score_partial(judged, "a walk")), LEAST)
        current, after = values[:size], iter(values[size:].tolist())
        chosen = []
        for row, (ahead, back) in enumerate(ways):
            ahead.weight = [weight * next(after) for weight in ahead.weight]
            back.weight = [weight * current[row] for weight in back.weight]
            if ended[row]:
                chosen.append(crew.canvas.take(everyone[[row]]))
                continue
            # By momentum only the surplus of the other direction turns a walk; a full text turns back.
            here, other = (ahead, back) if onward[row] else (back, ahead)
            if late or not (ahead.canvas and back.canvas):
                here = ahead if ahead.canvas else back
            elif setup.rng.random() * max(sum(here.weight), sum(other.weight)) >= sum(here.weight):
                here = other
            onward[row] = here is ahead
            share = np.cumsum(here.weight)
            place = int(np.searchsorted(share, setup.rng.random() * share[-1], side="right"))
            chosen.append(here.canvas[min(place, len(here.canvas) - 1)])
        canvas = Canvas.join(chosen)
        prediction = yield from crew.forward(canvas)
        full = ~process.is_open(canvas.tokens)
        scores = (yield from crew.judge(canvas, prediction)) if full.any() else None
        if scores is not None:
            last = move + 1 >= LONGEST * blanks
            ended |= full & (last or enough is None or scores.total >= enough)
        yield from crew.step(canvas, prediction, everyone, everyone, scores)
        if ended.all():
            break


def _moves(crew: Crew, row: int, turn: int) -> tuple[Moves, Moves]:
    """What lies ahead of a canvas and behind it. With k of n tokens known the authors give a way ahead
    1/C(n − 1, k) and one back 1/C(n − 1, k − 1), and let a few positions stand for all. What both have in
    common left out, each direction weighs as much as the mean value of the texts it is judged by."""
    process, canvas = crew.process, crew.canvas.take(np.array([row]))
    value, source, reader = crew.prediction.value, crew.prediction.row[row], process.reader
    masked = canvas.tokens[0] == process.mask_id
    ahead, back = Moves(), Moves()
    if value is not None and masked.any():
        sure = np.where(masked, value.top_logp[source], -np.inf)
        places = np.argsort(-sure, kind="stable")[: min(PLACES, masked.sum())].tolist()
        for place in places:
            drawn, drawn_logp = value.draws[source, place], value.draws_logp[source, place]
            if drawn.size > 1:  # there is one without chance
                some = slice(TOKENS * turn, TOKENS * (turn + 1))
                drawn, drawn_logp = drawn[some], drawn_logp[some]
            for token in np.unique(drawn).tolist():
                tokens, logp = canvas.tokens.copy(), canvas.logp.copy()
                tokens[0, place], logp[0, place] = token, drawn_logp[drawn == token][0]
                process._finish(tokens)
                ahead.canvas.append(Canvas(tokens, logp))
                ahead.weight.append(float((drawn == token).mean()) / len(places))
    # What stands behind an end token came of itself, and goes with it.
    end = reader.is_end(canvas.tokens[0])
    behind = np.cumsum(end) - end > 0
    (free,) = np.nonzero(~masked & (~behind if reader.given is None else reader.holes))
    chosen = crew.setup.rng.permutation(free)[:BACK].tolist()
    for place in chosen:
        where = (np.arange(masked.size) == place) | (behind & end[place])
        tokens = np.where(where, process.mask_id, canvas.tokens)
        back.canvas.append(Canvas(tokens, np.where(where, 0.0, canvas.logp)))
        back.weight.append(1 / len(chosen))
    return ahead, back
