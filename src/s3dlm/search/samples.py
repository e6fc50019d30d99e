"""Methods of independent trajectories: one, or K = N·b of them with different endings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from s3dlm.search.method import (
    Branching,
    ChildSampling,
    Ending,
    Lambda,
    Method,
    Population,
    Verified,
)
from s3dlm.search.options import setting
from s3dlm.search.particles import Particles
from s3dlm.search.resample import normalised
from s3dlm.search.rounds import LEAST, MOST_IDLE, sample
from s3dlm.search.run import Run
from s3dlm.search.smc import S3_ABLATION
from s3dlm.search.step import AGREED, FINISHED, SPENT, Outcome

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

EXACT = 1000  # votes up to which the probability is summed; from there on it is that of a normal


class Baseline(Method):
    name = "baseline"
    summary = "one trajectory, as the model's authors decode"
    verified: ClassVar[Verified] = "never"
    once_only = True
    cost = "1 + T"

    selection: Ending = "first"

    def search(self, run: Run) -> Coroutine[Any, Any, Particles]:
        return sample(run, 1, self.verified)


class Greedy(Baseline):
    name = "greedy"
    summary = "the baseline without sampling, which is LLaDA's own decoding by default"
    like = "baseline"
    fixed: ClassVar[dict[str, Any]] = {"temperature": 0.0}


class BestOfK(Method):
    name = "best_of_k"
    summary = "K = N·b independent trajectories, majority vote"
    verified: ClassVar[Verified] = "never"

    particles: Population = 4
    branching: Branching = 2
    child_sampling: ChildSampling = "independent"

    def search(self, run: Run) -> Coroutine[Any, Any, Particles]:
        return sample(run, self.size, self.verified, self.child_sampling)

    @property
    def size(self) -> int:
        return self.particles * self.branching

    def sized(self, size: int) -> Self:
        return self.model_copy(update={"particles": size, "branching": 1})


class Tilting(BestOfK):
    name = "tilting"
    summary = "K = N·b independent trajectories, a vote weighted by exp(λ·score)"
    source = S3_ABLATION
    verified: ClassVar[Verified] = "at the end"
    weighs = True

    lam: Lambda = 1.0
    selection: Ending = "weighted"

    def search(self, run: Run) -> Coroutine[Any, Any, Particles]:
        return sample(
            run, self.size, self.verified, self.child_sampling, weigh=lambda score: self.lam * score
        )


class VerifiedBestOfK(BestOfK):
    name = "verified_best_of_k"
    summary = "K = N·b independent trajectories, the one with the best score"
    verified: ClassVar[Verified] = "at the end"

    selection: Ending = "verified"


class AdaptiveVote(BestOfK):
    """Adaptive self-consistency: the vote is decided when the leading answer would stay ahead of the
    second with enough probability, whatever is sampled next."""

    name = "adaptive_vote"
    summary = (
        "samples until the majority is decided, at most K = N·b, or as many as a budget allows"
    )
    source = "adaptive self-consistency, Aggarwal et al. 2023"
    like = "best_of_k"
    meets_again = True
    cost = "N·b·(1 + T)"

    decided_at: float = setting(
        0.95, "how likely the leading answer must be to stay ahead of the second", ge=0.5, le=0.9999
    )

    def passes(self, steps: int, decoding: Decoding) -> int:
        return self.size * (1 + steps)  # in the worst case one sample after the other

    async def answer(self, run: Run) -> Outcome:
        most = math.inf if self.budget is not None else self.size
        outcomes: list[Outcome] = []
        votes: Counter[str] = Counter()
        made = nfe = idle = 0
        while True:
            (_, first), (_, second) = (*votes.most_common(2), ("", 0.0), ("", 0.0))[:2]
            left = None if self.budget is None else self.budget - nfe
            if ahead(first, second) >= self.decided_at:
                stopped = AGREED
                break
            if made >= most or (left is not None and left < LEAST):
                stopped = FINISHED if left is None else SPENT
                break
            size = int(min(needed(first, second, self.decided_at), self.size, most - made))
            if made and left is not None:  # as many as are likely to fit into what is left
                size = min(size, max(1, left // math.ceil(nfe / made)))
            number, places = len(outcomes), np.full(size, -1) if outcomes else None
            part = self.sized(size)
            outcome = await part.once(run, limit=left, round=number, places=places)
            outcomes.append(outcome)
            made, nfe = made + len(outcome), nfe + outcome.nfe
            shares = normalised(outcome.log_weight) * len(outcome)
            for tokens, share in zip(outcome.canvas.tokens, shares.tolist(), strict=True):
                if (given := run.answer_of(run.scorer.text(tokens))) is not None:
                    votes[given] += share
            idle = 0 if outcome.nfe else idle + 1
            if outcome.stopped != FINISHED or idle == MOST_IDLE:
                stopped = outcome.stopped
                break
        return replace(Outcome.join(outcomes), stopped=stopped)


def ahead(first: float, second: float) -> float:
    """The probability that the leading answer is likelier than the second: that θ > 1/2, where θ is
    Beta(first + 1, second + 1). A part of a leading vote counts for nothing, of another as a whole."""
    lead, other = math.floor(first + 1e-9), math.ceil(second - 1e-9)
    tosses = lead + other + 1
    if tosses > EXACT:
        return (1 + math.erf((lead - other) / math.sqrt(2 * tosses))) / 2
    return sum(math.comb(tosses, heads) for heads in range(other + 1, tosses + 1)) / (1 << tosses)


def needed(first: float, second: float, decided_at: float) -> int:
    """How many more votes could decide it, if all of them were for the leader."""
    count = 1
    while ahead(first + count, second) < decided_at:
        count += 1
    return count
