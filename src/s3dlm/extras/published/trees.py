"""UnMaskFork, a tree whose branches are deterministic ways to decode; and MDM-VGB, walks that reveal
tokens and re-mask them, by what the verifier says of partial texts.

docs/appendix/methods.md says what differs from their papers and code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from s3dlm.diffusion.blocks import Blocks, Reveal
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import SettingsError
from s3dlm.extras.published.whole import WholeDraws
from s3dlm.search.expand import occurrence
from s3dlm.search.method import Ending, Method
from s3dlm.search.options import Size, setting
from s3dlm.search.particles import Ahead, Canvas, CanvasPredictions, Looked, Particles
from s3dlm.search.run import Run
from s3dlm.search.score import Scores

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

RATIOS = tuple(tenths / 10 for tenths in range(9, 1, -1))  # the shares still masked at the nodes
FORK_POLICIES = (
    "low_confidence",
    "margin",
    "entropy",
)  # policies; each in blocks, and in one block
PLACES, TOKENS, BACK = 8, 8, 8  # masked positions and tokens of each that lie ahead; ways back
MOVES_PER_POSITION = 8  # moves per position, after which a walk only goes ahead
LEAST_VALUE = 1e-4  # the value of a hopeless text, so that there is always a way


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


class UnMaskFork(Method):
    """A node is reached by decoding in one of several ways to the next share of masks; a text finishes a
    node in the first way, and its score counts for all nodes above it."""

    name = "unmaskfork"
    summary = "N texts from a tree search whose branches are policies and block lengths, all deterministic"
    source = "after UnMaskFork, Misaki and Akiba 2026"
    fixed: ClassVar[dict[str, Any]] = {
        "temperature": 0.0, "reveal": "schedule", "reveal_threshold": 0.98,
        "policy": "low_confidence", "position_temperature": 0.0, "top_k": None, "top_p": None,
        "probabilities": "plain",
    }  # fmt: skip
    once_only = True
    meets_again = True
    cost = "L·N"

    particles: Size = setting(8, "texts (N)")
    selection: Ending = "verified"

    def passes(self, steps: int, decoding: Decoding) -> int:
        return decoding.gen_length * self.size  # where blocks do not share out evenly

    def texts(self, steps: int) -> int:
        return 3 * self.size

    async def search(self, run: Run) -> Particles:
        own = MaskedDiffusion.in_run(run)
        length = own.start(1, run.rng).tokens.shape[1]
        pace = [Reveal(0, length, max(reveal.count for reveal in own.schedule))]
        whole = Blocks(length) if not own.blocks.causal else own.blocks
        process = WholeDraws.of(own, draws=1, schedule=pace)
        decodings = [process.decoding.model_copy(update={"policy": way}) for way in FORK_POLICIES]
        actions = [
            replace(process, blocks=blocks, decoding=decoding)
            for decoding in decodings
            for blocks in dict.fromkeys((process.blocks, whole))
        ]
        # All predictions come with the statistics that any of the policies needs.
        run.process = process = replace(process, decoding=decodings[FORK_POLICIES.index("margin")])
        known: dict[bytes, CanvasPredictions] = {}  # all is deterministic: a pass serves for ever
        no_draw = np.zeros(1, dtype=np.int64)
        texts = list[Canvas]()

        async def decode(canvas: Canvas, action: WholeDraws, left: int) -> Canvas:
            """Until at most so many positions are masked."""
            while (canvas.tokens == process.mask_id).sum() > left:
                key = canvas.tokens.tobytes()
                if key in known:
                    run.pay(0, process.passes)
                else:
                    known[key] = (await run.forward(canvas, run.steps, logical=1)).prediction
                if not texts:  # without a text, there is at least this look-ahead
                    clean = next(process.look_aheads(canvas, known[key]))
                    run.populate(canvas, Looked(known[key], clean, Scores.missing(1)))
                canvas = action.expand(canvas, known[key], no_draw, 0, run.rng)
            return canvas

        root = Fork(process.start(1, run.rng))
        blanks = int((root.canvas.tokens == process.mask_id).sum())
        for _ in range(self.size):
            path = [root]
            while path[-1].depth < len(RATIOS) and len(path[-1].forks) == len(actions):
                visits = path[-1].visits
                path.append(max(path[-1].forks, key=lambda fork: fork.promise(visits)))
            node = path[-1]
            if node.depth < len(RATIOS):
                left = int(RATIOS[node.depth] * blanks)
                canvas = await decode(node.canvas, actions[len(node.forks)], left)
                node.forks.append(Fork(canvas, node.depth + 1))
                path.append(node.forks[-1])
            texts.append(await decode(path[-1].canvas, actions[0], 0))
            finished, found = CanvasPredictions(None, np.full(len(texts), -1)), Canvas.join(texts)
            looked = await run.verify(Ahead(finished, process.look_aheads(found, finished)))
            for fork in path:
                fork.visits, fork.value = fork.visits + 1, fork.value + float(looked.score[-1])
            assert run.particles is not None
            parent = np.append(np.arange(len(texts) - 1), -1)
            particles = run.keep(run.children(run.particles, found, parent), looked)
        return particles


Moves = list[tuple[float, Canvas]]  # canvases that may follow one, each with its weight


def _mass(moves: Moves) -> float:
    return sum(weight for weight, _ in moves)


class Vgb(Method):
    """MDM-VGB with momentum. Ahead lie up to eight tokens for each of the eight surest masked positions,
    weighed by the value of the text that has it; back lie eight known positions, weighed by the value of
    the text as it is. A walk turns round when the other direction weighs more."""

    name = "vgb"
    summary = (
        "N walks that reveal a token or re-mask one, by the scores of the partial texts, and keep "
        "their direction unless the other one promises more"
    )
    source = "as in MDM-VGB with momentum, 2026"
    verifier = "checker"
    fixed: ClassVar[dict[str, Any]] = {
        "steps": None, "block_length": None, "reveal": "schedule", "reveal_threshold": 0.98,
        "policy": "low_confidence", "position_temperature": 0.0,
    }  # fmt: skip
    meets_again = True
    cost = "1 + 9·L·N"

    particles: Size = setting(1, "walks (N)")
    selection: Ending = "verified"

    def passes(self, steps: int, decoding: Decoding) -> int:
        return 1 + 9 * decoding.gen_length * self.size

    def check(self, run: Run) -> None:
        verifier = run.scorer.verifier
        if verifier.score_partial is None:
            name = verifier.name or type(verifier).__name__
            raise SettingsError(
                f"method='vgb' walks by the score of partial texts, and verifier {name!r} reads none; "
                "choose verifier='checker', or give yours a method `score_partial`"
            )
        if MaskedDiffusion.in_run(run).blocks.causal:
            raise SettingsError(
                "method='vgb' reveals and masks anywhere in a text, and this model is block-causal: it "
                "fills one block after the other; choose another method, or a model that reads in both "
                "directions"
            )

    async def search(self, run: Run) -> Particles:
        size, rng = self.size, run.rng
        run.process = process = WholeDraws.of(MaskedDiffusion.in_run(run), draws=TOKENS * size)
        particles = await run.begin(size)
        blanks = int((particles.canvas.tokens[0] == process.mask_id).sum())
        enough = run.scorer.verifier.satisfied_at
        onward, ended = np.ones(size, dtype=bool), np.zeros(size, dtype=bool)
        for move in range((MOVES_PER_POSITION + 1) * blanks):
            late, everyone = move >= MOVES_PER_POSITION * blanks, np.arange(size)
            turns = occurrence(particles.prediction.row)  # equal canvases draw for themselves
            ways = [_moves(run, process, particles, row, turns[row]) for row in range(size)]
            texts = [canvas for ahead, _ in ways for _, canvas in ahead]
            judged = np.concatenate([particles.canvas.tokens, *(canvas.tokens for canvas in texts)])
            values = np.maximum(await run.scorer.score_partial(judged, "a walk"), LEAST_VALUE)
            current, after = values[:size], iter(values[size:].tolist())
            chosen = []
            for row, (ahead, back) in enumerate(ways):
                ahead = [(weight * next(after), canvas) for weight, canvas in ahead]
                back = [(weight * current[row], canvas) for weight, canvas in back]
                if ended[row]:
                    chosen.append(particles.canvas.take(everyone[[row]]))
                    continue
                # By momentum only the surplus of the other direction turns a walk; a full text turns.
                here, other = (ahead, back) if onward[row] else (back, ahead)
                if late or not (ahead and back):
                    here = ahead or back
                elif rng.random() * max(_mass(here), _mass(other)) >= _mass(here):
                    here = other
                onward[row] = here is ahead
                share = np.cumsum([weight for weight, _ in here])
                place = int(np.searchsorted(share, rng.random() * share[-1], side="right"))
                chosen.append(here[min(place, len(here) - 1)][1])
            canvas = Canvas.join(chosen)
            children, full = run.children(particles, canvas, everyone), ~process.is_open(canvas)
            looked = await run.verify(await run.predict(children), wanted=bool(full.any()))
            last = move + 1 >= MOVES_PER_POSITION * blanks
            ended |= full & (last or enough is None or looked.score >= enough)
            particles = run.keep(children, looked)
            if ended.all():
                break
        return particles


def _moves(
    run: Run, process: WholeDraws, particles: Particles, row: int, turn: int
) -> tuple[Moves, Moves]:
    """What lies ahead of a canvas and behind it. With k of n tokens known the authors give a way ahead
    1/C(n − 1, k) and one back 1/C(n − 1, k − 1), and let a few positions stand for all. What both have in
    common left out, each direction weighs as much as the mean value of the texts it is judged by."""
    prediction, canvas = particles.prediction, particles.canvas.take(np.array([row]))
    value, source, reader = prediction.value, prediction.row[row], process.reader
    masked = canvas.tokens[0] == process.mask_id
    ahead, back = Moves(), Moves()
    if value is not None and masked.any():
        sure = np.where(masked, value.top_logp[source], -np.inf)
        places = np.argsort(-sure, kind="stable")[: min(PLACES, masked.sum())].tolist()
        for place in places:
            drawn, drawn_logp = value.draws[source, place], value.draws_logp[source, place]
            if drawn.size > 1:  # there is a deterministic one
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
    chosen = run.rng.permutation(free)[:BACK].tolist()
    for place in chosen:
        where = (np.arange(masked.size) == place) | (behind & end[place])
        tokens = np.where(where, process.mask_id, canvas.tokens)
        back.append((1 / len(chosen), Canvas(tokens, np.where(where, 0.0, canvas.logp))))
    return ahead, back
