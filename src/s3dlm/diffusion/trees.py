"""UnMaskFork, a tree whose branches are ways to decode, each without chance; and MDM-VGB, walks that
reveal tokens and mask them again, by what the verifier says of partial texts.

docs/appendix/methods.md says what differs from their papers and code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from s3dlm.diffusion.blocks import Blocks, Reveal
from s3dlm.diffusion.published import Crew, published
from s3dlm.diffusion.whole import WholeDraws
from s3dlm.errors import SettingsError
from s3dlm.search.particles import Canvas, CanvasPredictions, occurrence
from s3dlm.search.score import Scores
from s3dlm.search.step import Searching

RATIOS = tuple(tenths / 10 for tenths in range(9, 1, -1))  # the shares still masked at the nodes
WAYS = ("low_confidence", "margin", "entropy")  # policies; each in blocks, and in one block
PLACES, TOKENS, BACK = 8, 8, 8  # masked positions and tokens of each that lie ahead; ways back
LONGEST = 8  # moves per position, after which a walk only goes ahead
LEAST = 1e-4  # the value of a hopeless text, so that there is always a way


@dataclass(slots=True)
class Fork:
    """A partly denoised answer in the tree, and how good the texts were that came of it."""

    canvas: Canvas
    depth: int = 0
    forks: list[Fork] = field(default_factory=list)  # by action, in their order
    visits: int = 0
    value: float = 0.0

    def promise(self, visits: int) -> float:
        """UCT with c = 1, from the visits of the fork before it."""
        return self.value / self.visits + math.sqrt(math.log(visits) / self.visits)


@published
def unmaskfork(crew: Crew) -> Searching[None]:
    """UnMaskFork: N texts. A node is reached by decoding in one of several ways to the next share of
    masks; a text finishes a node in the first way, and its score counts for all nodes above it."""
    length = crew.canvas.tokens.shape[1]
    pace = [Reveal(0, length, max(reveal.count for reveal in crew.process.schedule))]
    whole = Blocks(length) if not crew.process.blocks.causal else crew.process.blocks
    process = WholeDraws.of(crew.process, draws=1, schedule=pace)
    decodings = [process.decoding.model_copy(update={"policy": way}) for way in WAYS]
    actions = [
        replace(process, blocks=blocks, decoding=decoding)
        for decoding in decodings
        for blocks in dict.fromkeys((process.blocks, whole))
    ]
    # All predictions come with the statistics that any of the policies needs.
    crew.process = process = replace(process, decoding=decodings[WAYS.index("margin")])
    known: dict[bytes, CanvasPredictions] = {}  # nothing is by chance, so a pass serves for ever
    no_draw = np.zeros(1, dtype=np.int64)

    def decode(canvas: Canvas, action: WholeDraws, left: int) -> Searching[Canvas]:
        """Until at most so many positions are masked."""
        while (canvas.tokens == process.mask_id).sum() > left:
            key = canvas.tokens.tobytes()
            if key not in known:
                known[key] = yield from crew.forward(canvas)
            else:
                crew.nfe_logical += process.passes
            if crew.clean is None:  # without a text, there is at least this look-ahead
                crew.canvas, crew.prediction = canvas, known[key]
            canvas = action.expand(canvas, known[key], no_draw, 0, crew.setup.rng)
        return canvas

    root = Fork(process.start())
    blanks = int((root.canvas.tokens == process.mask_id).sum())
    texts: list[Canvas] = []
    scores: list[Scores] = []
    for _ in range(crew.setup.settings.size):
        path = [root]
        while path[-1].depth < len(RATIOS) and len(path[-1].forks) == len(actions):
            visits = path[-1].visits
            path.append(max(path[-1].forks, key=lambda fork: fork.promise(visits)))
        node = path[-1]
        if node.depth < len(RATIOS):
            left = int(RATIOS[node.depth] * blanks)
            canvas = yield from decode(node.canvas, actions[len(node.forks)], left)
            node.forks.append(Fork(canvas, node.depth + 1))
            path.append(node.forks[-1])
        texts.append((yield from decode(path[-1].canvas, actions[0], 0)))
        finished = CanvasPredictions(None, np.full(len(texts), -1), 0)
        scores.append((yield from crew.judge(texts[-1], finished.take(no_draw))))
        for fork in path:
            fork.visits, fork.value = fork.visits + 1, fork.value + float(scores[-1].total[0])
        parent = np.append(np.arange(len(texts) - 1), -1)
        everyone = np.arange(len(texts))
        yield from crew.step(Canvas.join(texts), finished, parent, everyone, Scores.join(scores))


Moves = list[tuple[float, Canvas]]  # canvases that may follow one, each with its weight


def _mass(moves: Moves) -> float:
    return sum(weight for weight, _ in moves)


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
    if crew.process.blocks.causal:
        raise SettingsError(
            "method='vgb' reveals and masks anywhere in a text, and this model is block-causal: it fills "
            "one block after the other; choose another method, or a model that reads in both directions"
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
        texts = [canvas for ahead, _ in ways for _, canvas in ahead]
        judged = np.concatenate([crew.canvas.tokens, *(canvas.tokens for canvas in texts)])
        values = np.maximum((yield from setup.scorer.score_partial(judged, "a walk")), LEAST)
        current, after = values[:size], iter(values[size:].tolist())
        chosen = []
        for row, (ahead, back) in enumerate(ways):
            ahead = [(weight * next(after), canvas) for weight, canvas in ahead]
            back = [(weight * current[row], canvas) for weight, canvas in back]
            if ended[row]:
                chosen.append(crew.canvas.take(everyone[[row]]))
                continue
            # By momentum only the surplus of the other direction turns a walk; a full text turns back.
            here, other = (ahead, back) if onward[row] else (back, ahead)
            if late or not (ahead and back):
                here = ahead or back
            elif setup.rng.random() * max(_mass(here), _mass(other)) >= _mass(here):
                here = other
            onward[row] = here is ahead
            share = np.cumsum([weight for weight, _ in here])
            place = int(np.searchsorted(share, setup.rng.random() * share[-1], side="right"))
            chosen.append(here[min(place, len(here) - 1)][1])
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
                share = float((drawn == token).mean()) / len(places)
                ahead.append((share, Canvas(tokens, logp)))
    # What stands behind an end token came of itself, and goes with it.
    end = reader.is_end(canvas.tokens[0])
    behind = np.cumsum(end) - end > 0
    (free,) = np.nonzero(~masked & (~behind if reader.given is None else reader.holes))
    chosen = crew.setup.rng.permutation(free)[:BACK].tolist()
    for place in chosen:
        where = (np.arange(masked.size) == place) | (behind & end[place])
        tokens = np.where(where, process.mask_id, canvas.tokens)
        back.append((1 / len(chosen), Canvas(tokens, np.where(where, 0.0, canvas.logp))))
    return ahead, back
