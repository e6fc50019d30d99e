"""UnMaskFork: a tree whose branches are ways to decode, each without chance.

docs/method.md says what differs from its paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from s3dlm.diffusion.blocks import Blocks, Reveal
from s3dlm.diffusion.published import Crew, published
from s3dlm.diffusion.whole import WholeDraws
from s3dlm.search.particles import Canvas, CanvasPredictions
from s3dlm.search.score import Scores
from s3dlm.search.step import Searching

RATIOS = tuple(tenths / 10 for tenths in range(9, 1, -1))  # the shares still masked at the nodes
WAYS = ("low_confidence", "margin", "entropy")  # policies; each in blocks, and in one block


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
    actions = [
        replace(
            process, blocks=blocks, decoding=process.decoding.model_copy(update={"policy": way})
        )
        for way in WAYS
        for blocks in dict.fromkeys((process.blocks, whole))
    ]
    process = next(
        way for way in actions if way.decoding.policy == "margin"
    )  # asks for all statistics
    crew.process = process
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
