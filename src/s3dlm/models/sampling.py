"""Exact samples from logits at the price of one pass: inverse CDF, never |V| draws a position."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 256  # tokens drawn together first when the vocabulary is large


def largest_of(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's maximum and its first place; on CPU by two vectorised passes, which PyTorch's one
    that carries indices is not."""
    if logits.device.type != "cpu":
        both = logits.max(dim=1)
        return both.values, both.indices
    return logits.amax(dim=1), torch.from_numpy(logits.numpy().argmax(axis=1))


def sums(rows: Tensor) -> Tensor:
    """Each row's sum; a row alone goes twice, because PyTorch would share it out among threads and
    add in another order than in company."""
    return rows.sum(dim=1) if len(rows) > 1 else rows.expand(2, -1).sum(dim=1)[:1]


def sample(shifted: Tensor, best: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Exact samples by inverse CDF: siblings share one set of weights, one uniform each."""
    if temperature == 0.0:
        return best[:, None].expand(-1, uniforms.shape[1])
    weights = shifted.exp() if temperature == 1.0 else (shifted / temperature).exp_()
    vocabulary = weights.shape[1]
    if vocabulary % GROUP or vocabulary < 4 * GROUP:
        edges = weights.cumsum(dim=1)
        return _place(edges, uniforms * edges[:, -1:])
    # A cumulative sum over a large vocabulary costs more than the softmax. So first a group of
    # tokens is drawn by its summed weight, then a token inside it.
    groups = weights.view(len(weights), -1, GROUP)
    group, rest = _invert(groups.sum(dim=2), uniforms)
    inner = groups.gather(1, group[:, :, None].expand(-1, -1, GROUP))
    return group * GROUP + _place(inner.cumsum(dim=2), rest[:, :, None])[:, :, 0]


def _invert(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The index into whose share of the weights each uniform falls, and how far into it."""
    edges = weights.cumsum(dim=1)
    points = uniforms * edges[:, -1:]
    place = _place(edges, points)
    before = edges.gather(1, place) - weights.gather(1, place)
    return place, (points - before).clamp_(min=0)


def _place(edges: Tensor, points: Tensor) -> Tensor:
    """First edge above each point; rounding never carries a point past the last weight."""
    total = edges[..., -1:]
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(edges, torch.minimum(points, below), right=True)
