"""Votes of other papers: over block lengths, and over the steps of one trajectory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from s3dlm.diffusion.blocks import Blocks, reveals
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.search.method import Ending
from s3dlm.search.particles import Ints
from s3dlm.search.rounds import attempt
from s3dlm.search.run import Run
from s3dlm.search.samples import Baseline, BestOfK
from s3dlm.search.step import Outcome

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding


class TemporalVote(Baseline):
    name = "temporal_vote"
    summary = "one trajectory, a vote of the look-ahead texts of all its steps, later ones heavier"
    source = "temporal self-consistency, Wang et al. 2025"

    selection: Ending = "temporal"


class Hex(BestOfK):
    name = "hex"
    summary = "K trajectories spread over block lengths, majority vote"
    source = "HEX, Lee et al. 2025"
    fixed: ClassVar[dict[str, Any]] = {"block_length": None}
    meets_again = True
    cost = "5 + T·N·b"

    def passes(self, steps: int, decoding: Decoding) -> int:
        return min(self.size, 5) + steps * self.size

    async def once(
        self, run: Run, *, limit: int | None = None, round: int | None = None,
        places: Ints | None = None,
    ) -> Outcome:  # fmt: skip
        """The trajectories are shared out over block lengths, which are searched one after the other."""
        processes = by_block_lengths(MaskedDiffusion.in_run(run))
        shares = [len(range(first, self.size, len(processes))) for first in range(len(processes))]
        most = None if limit is None else max(1, limit // run.process.passes)
        shares = [share for share in shares if share][:most]
        each = None if limit is None else limit // len(shares)
        outcomes: list[Outcome] = []
        for process, share in zip(processes, shares, strict=False):
            search = self.sized(share).search
            outcome = await attempt(
                run, search, limit=each, process=process, round=round, places=places
            )
            outcomes.append(outcome)
            places = np.full(self.size, -1)
        return Outcome.join(outcomes)


def by_block_lengths(process: MaskedDiffusion) -> list[MaskedDiffusion]:
    """The same denoising under HEX's five block lengths, from L/32 to L/2, equally many steps each."""
    length, own = process.schedule[-1].stop, process.blocks
    lengths = sorted({max(1, length // share) for share in (32, 16, 8, 4, 2)})
    sizes = [size for size in lengths if -(-length // size) <= process.steps] or [length]
    if own.causal:  # parts of the model's blocks: a longer block cannot be filled at once
        return [
            replace(
                process,
                blocks=replace(own, block=size),
                steps_per_block=max(1, process.steps_per_block * size // own.block),
            ).scheduled(length)
            for size in sorted({min(size, own.model_block) for size in sizes})
        ]
    if process.reader.given is not None:
        tokens_per_step = max(reveal.count for reveal in process.schedule)
        return [process.with_given(process.reader.given, size, tokens_per_step) for size in sizes]
    schedules = [reveals(length, process.steps, size, process.decoding.reveal) for size in sizes]
    pairs = zip(schedules, sizes, strict=True)
    return [replace(process, schedule=made, blocks=Blocks(size)) for made, size in pairs]
