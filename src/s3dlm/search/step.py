"""What an observer sees of a search: one `Step` per denoising step, and at the end the `Outcome`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from s3dlm.search.particles import Children, CleanText, Floats, Ints, Particles
from s3dlm.search.resample import effective_sample_size, normalise
from s3dlm.search.score import Scores

# Why a search ended.
FINISHED = "finished"  # every answer is complete
SATISFIED = "satisfied"  # a text has the score with which its verifier is satisfied
SPENT = "budget"  # no forward pass is left


@dataclass(frozen=True, slots=True)
class Step:
    """One denoising step; arrays are read-only by convention."""

    index: int  # from 0
    total: int
    tokens: Ints  # (children, length)
    logp: Floats  # (children, length) of each known token when it became known
    clean: Ints  # (children, length) the look-ahead
    clean_logp: Floats  # (children, length) of its tokens, revealed or only predicted
    parent: Ints  # (children,) index into the previous step's survivors; −1: none of them
    score: Floats  # (children,) NaN where nothing was scored
    parts: list[Mapping[str, float]]  # of each child's score
    confidence: Floats  # (children,)
    weight: Floats  # (children,) normalised
    survivor: Ints  # (particles,) index into the children
    ess: float  # effective sample size of the weights
    unique_ancestors: int  # parents that still have offspring
    log_normaliser: float  # log of the mean unnormalised weight
    nfe: int  # forward passes of this step
    resampled: bool
    round: int = 0  # of the searches that a budget pays for, from 0

    @classmethod
    def of(
        cls,
        index: int,
        total: int,
        children: Children,
        clean: CleanText,
        scores: Scores,
        log_weight: Floats,
        kept: Kept,
        nfe: int,
    ) -> Step:
        weight = normalise(log_weight)
        return cls(
            index=index,
            total=total,
            tokens=children.canvas.tokens,
            logp=children.canvas.logp,
            clean=clean.tokens,
            clean_logp=clean.logp,
            parent=children.parent,
            score=scores.total,
            parts=scores.parts,
            confidence=clean.confidence,
            weight=weight,
            survivor=kept.index,
            ess=effective_sample_size(weight),
            unique_ancestors=len(set(children.parent[kept.index].tolist())),
            log_normaliser=float(log_weight.max()) - math.log(weight.size * float(weight.max())),
            nfe=nfe,
            resampled=kept.resampled,
        )

    def __repr__(self) -> str:
        best = "" if np.isnan(self.score).all() else f", best score {np.nanmax(self.score):.3f}"
        return (
            f"Step({self.index + 1} of {self.total}: {len(self.tokens)} children, "
            f"{self.survivor.size} survivors, ESS {self.ess:.1f}, NFE {self.nfe}{best})"
        )

    def _repr_html_(self) -> str:
        children = [
            f"<tr><td>{'new' if parent < 0 else parent + 1}</td>"
            f"<td>{'–' if np.isnan(score) else f'{score:.3f}'}</td>"
            f"<td>{weight:.3f}</td><td>{int((self.survivor == child).sum()) or ''}</td></tr>"
            for child, (parent, score, weight) in enumerate(
                zip(self.parent, self.score, self.weight, strict=True)
            )
        ]
        return (
            f"<p>{escape(repr(self))}</p><table><tr><th>parent</th><th>score</th><th>weight</th>"
            f"<th>offspring</th></tr>{''.join(children)}</table>"
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """Who survives a step."""

    index: Ints  # (particles,) into the children
    log_weight: Floats  # (particles,) what they carry on
    resampled: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The population after the last step."""

    particles: Particles
    clean: CleanText
    scores: Scores
    nfe: int  # forward passes in all
    nfe_logical: int  # what Algorithm 1 takes without sharing: 1 + T·N·b
    stopped: str = FINISHED  # why it ended
    trial: int = 0  # which of several searches it comes from; see trials.py

    def take(self, index: Ints) -> Outcome:
        """Some of the population, in this order."""
        particles = replace(
            self.particles,
            canvas=self.particles.canvas.take(index),
            prediction=self.particles.prediction.take(index),
            score=self.particles.score[index],
            log_weight=self.particles.log_weight[index],
            lineage=self.particles.lineage.take(index),
        )
        return replace(
            self, particles=particles, clean=self.clean.take(index), scores=self.scores.take(index)
        )
