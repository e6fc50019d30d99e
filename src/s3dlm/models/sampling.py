"""What a search needs of logits, in as few passes as possible: best token, its probability, samples.

Samples are exact, by inverse CDF with one uniform each, never |V| draws per position. A cumulative
sum over a large vocabulary would cost more than the softmax, so there tokens form groups: the best
one and the drawn ones are searched among the groups first, then inside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from s3dlm.models.packing import Ints, Place

GROUP = 256  # tokens per group when the vocabulary is large
MODERATE = 40.0  # the exponentials of a row whose largest logit is within ±40 add up in float32
COLDEST = 1e-30  # lower temperatures are raised to this: its inverse must be a float32
BELOW_ONE = 1 - 2**-24  # the largest float32 under 1: its product with a total stays under that


@dataclass(frozen=True, slots=True)
class Shifted:
    """Logits, shifted in place where their exponentials need it, and what was learnt on the way."""

    logits: Tensor  # (rows, vocabulary)
    largest: Tensor  # (rows,) before any shift
    best: Tensor  # (rows,) the first token that has it
    best_logp: Tensor  # (rows,) its untempered log-probability
    log_sum: Tensor  # (rows,) log Σ exp of the shifted logits
    temperature: float
    masses: Tensor | None  # (rows, groups) Σ exp(shifted / temperature), if there are groups

    def sample(self, uniforms: Tensor) -> Tensor:
        """Exact samples, one for each of the uniforms (rows, draws)."""
        if self.temperature == 0.0:
            return self.best[:, None].expand(-1, uniforms.shape[1])
        if self.masses is None:
            edges = self._weights(self.logits).cumsum(dim=1)
            points = uniforms.clamp(max=BELOW_ONE).mul_(edges[:, -1:])
            return _first_above(edges, points)
        # The group in whose share of the masses each uniform falls, and how far into it.
        edges = self.masses.cumsum(dim=1)
        points = uniforms.clamp(max=BELOW_ONE).mul_(edges[:, -1:])
        group = _first_above(edges, points)
        before = edges.gather(1, group) - self.masses.gather(1, group)
        rest = (points - before).clamp_(min=0)
        chosen = group[:, :, None].expand(-1, -1, GROUP)
        inner = self._weights(_groups(self.logits).gather(1, chosen)).cumsum(dim=2)
        # Rounding must not move a point past the last weight.
        below = torch.nextafter(inner[..., -1:], torch.zeros_like(inner[..., -1:]))
        inside = _first_above(inner, torch.minimum(rest[:, :, None], below))
        return group * GROUP + inside[:, :, 0]

    def logp(self, tokens: Tensor) -> Tensor:
        """Untempered log-probabilities of tokens (rows, any)."""
        return self.logits.gather(1, tokens).sub_(self.log_sum[:, None])

    def statistics(self, chunk: int) -> list[Tensor]:
        """Margin between the two best tokens and entropy, `chunk` rows at a time."""
        margin, entropy = torch.empty_like(self.log_sum), torch.empty_like(self.log_sum)
        for first in range(0, len(margin), chunk):
            few = slice(first, first + chunk)
            logp = self.logits[few] - self.log_sum[few, None]
            two = logp.topk(2, dim=1).values.exp()
            margin[few], entropy[few] = two[:, 0] - two[:, 1], sums(torch.special.entr(logp.exp()))
        return [margin, entropy]

    def _weights(self, shifted: Tensor) -> Tensor:
        tempered = shifted if self.temperature == 1.0 else shifted * (1 / self.temperature)
        return tempered.exp()


def shift(logits: Tensor, temperature: float, chunk: int) -> Shifted:
    """Read logits, `chunk` rows at a time, so that on CPU a core's cache holds them.

    A temperature of 0 means that only the best token will be drawn.
    """
    if temperature:
        temperature = max(temperature, COLDEST)
    if logits.shape[1] % GROUP or logits.shape[1] < 4 * GROUP:
        best = _first_largest(logits)
        largest = logits.gather(1, best[:, None])
        logits.sub_(largest)
        log_sum = sums(logits.exp()).log_()
        return Shifted(logits, largest[:, 0], best, -log_sum, log_sum, temperature, None)
    groups = _groups(logits)
    peaks = logits.new_empty(groups.shape[:2])
    largest, log_sum = logits.new_empty(len(logits)), logits.new_empty(len(logits))
    masses = torch.empty_like(peaks) if temperature else None
    scratch = torch.empty_like(logits[:chunk])
    farthest = MODERATE * min(1.0, temperature or 1.0)
    for first in range(0, len(logits), chunk):
        few = slice(first, first + chunk)
        part = logits[few]
        torch.amax(groups[few], 2, out=peaks[few])
        torch.amax(peaks[few], 1, out=largest[few])
        # On a GPU looking first would make it wait for the host.
        if part.device.type != "cpu" or float(largest[few].abs().max()) > farthest:
            part.sub_(_far(largest[few], farthest)[:, None])
        weights = torch.exp(part, out=scratch[: len(part)])
        log_sum[few] = sums(weights)
        if masses is not None:
            if temperature != 1.0:
                torch.mul(part, 1 / temperature, out=weights).exp_()
            torch.sum(_groups(weights), 2, out=masses[few])
    group = _first_largest(peaks)
    inner = groups.gather(1, group[:, None, None].expand(-1, 1, GROUP))[:, 0]
    best = group * GROUP + _first_largest(inner)
    best_logp = largest - _far(largest, farthest) - log_sum.log_()
    return Shifted(logits, largest, best, best_logp, log_sum, temperature, masses)


def _far(largest: Tensor, farthest: float) -> Tensor:
    """What rows are shifted by: their largest logit, where it is far from zero."""
    return largest.where(largest.abs() > farthest, 0.0)


def sums(rows: Tensor) -> Tensor:
    """Each row's sum; a single row goes twice, because PyTorch would divide it among threads and add
    in another order than in a batch."""
    return rows.sum(dim=1) if len(rows) > 1 else rows.expand(2, -1).sum(dim=1)[:1]


def _groups(logits: Tensor) -> Tensor:
    return logits.view(len(logits), -1, GROUP)


def _first_largest(rows: Tensor) -> Tensor:
    """Index of each row's first maximum, or of a NaN; PyTorch's own is not vectorised on CPU."""
    if rows.device.type != "cpu":
        return rows.max(dim=1).indices
    return torch.from_numpy(rows.numpy().argmax(axis=1))


def _first_above(edges: Tensor, points: Tensor) -> Tensor:
    """Index of the first edge above each point; in range even for NaN, which is reported later."""
    return torch.searchsorted(edges, points, right=True).clamp_(max=edges.shape[-1] - 1)


def restrict(
    logits: Tensor, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Tempered logits of the tokens that may be drawn, −∞ elsewhere; top-p first, as Dream does.

    Of top-p the first token that passes the threshold stays; ties with the k-th best stay too.
    """
    logits = logits / max(temperature, COLDEST) if temperature else logits.clone()
    if top_p is not None and top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        before = torch.softmax(ordered, -1).cumsum(-1).roll(1, -1)
        before[..., 0] = 0.0
        beyond = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, order, before > top_p)
        logits = logits.masked_fill_(beyond, -torch.inf)
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, -1).values[..., -1:]
        logits = logits.masked_fill_(logits < least, -torch.inf)
    return logits


@dataclass(frozen=True, slots=True)
class AllowedTokens:
    """Rows of logits in which only some tokens may be drawn."""

    rows: Ints  # in rising order
    words: Tensor  # (rows, words) a bit for each token

    @classmethod
    def of(cls, places: Sequence[Place], device: torch.device) -> AllowedTokens | None:
        """Those of places that are read together, if they have any."""
        if places[0].request.allowed is None:
            return None
        begins = accumulate((place.feature.size for place in places), initial=0)
        found = [place.limited() for place in places]
        rows = np.concatenate([at + begin for (at, _), begin in zip(found, begins, strict=False)])
        return cls(rows, torch.from_numpy(np.concatenate([w for _, w in found])).to(device))

    def apply(self, logits: Tensor) -> None:
        """Make all other tokens impossible."""
        bit = torch.arange(32, dtype=torch.int32, device=logits.device)
        allowed = (self.words[:, :, None] >> bit & 1).flatten(1)[:, : logits.shape[1]].bool()
        at = torch.from_numpy(self.rows).to(logits.device)
        logits[at] = logits[at].masked_fill(~allowed, -torch.inf)


def shift_right(features: Tensor, before: Tensor | None = None) -> Tensor:
    """Each position with the features of the one before it: a next-token model's habit that some
    diffusion models keep. The first position takes `before` (rows, width), else its own."""
    first = features[:, :1] if before is None else before[:, None]
    return torch.cat((first, features[:, :-1]), 1)
