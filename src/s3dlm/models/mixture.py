"""A mixture of experts: each token goes through the few feed-forward layers its router chooses.

Two routers exist in the models we run: softmax (LLaDA-MoE, SDAR-MoE), and sigmoid with a bias that
is used for choosing only, among the best groups of experts (LLaDA2).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm.models.config import Experts

FEWEST_ROWS = 16  # on CPU a matrix with fewer rows may round them differently; see transformer.py


class Mixture(nn.Module):
    """The weights of all experts, stacked, so that loading and counting see few parameters."""

    def __init__(self, experts: Experts, width: int) -> None:
        super().__init__()
        self.experts = experts
        count, hidden = experts.count, experts.hidden
        self.router = _parameter(count, width)
        self.router_bias = _parameter(count) if experts.sigmoid else None
        self.gate_up = _parameter(count, 2 * hidden, width)
        self.down = _parameter(count, width, hidden)
        shared = experts.shared
        self.shared_gate_up = _parameter(2 * shared, width) if shared else None
        self.shared_down = _parameter(width, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, width) → (tokens, width)."""
        chosen, weight = self.route(x)
        mixed = self.routed(x, chosen, weight)
        if self.shared_gate_up is not None and self.shared_down is not None:
            mixed = mixed + swiglu(x, self.shared_gate_up, self.shared_down)
        return mixed

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Chosen experts and their weights, (tokens, chosen) each; in float32, as trained."""
        logits = F.linear(x.float(), self.router.float())
        if self.router_bias is None:
            scores = torch.softmax(logits, -1)
            weight, chosen = scores.topk(self.experts.chosen, -1)
        else:
            scores = torch.sigmoid(logits)
            chosen = self.best_in_groups(scores + self.router_bias.float())
            weight = scores.gather(-1, chosen)
        if self.experts.renormalised:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return chosen, weight * self.experts.scale

    def best_in_groups(self, scores: Tensor) -> Tensor:
        """The best experts of the groups whose two best members add up to most."""
        experts = self.experts
        grouped = scores.view(len(scores), experts.groups, -1)
        if experts.kept_groups < experts.groups:
            strength = grouped.topk(2, -1).values.sum(-1)
            kept = strength.topk(experts.kept_groups, -1).indices
            dropped = torch.ones_like(strength, dtype=torch.bool).scatter_(1, kept, False)
            grouped = grouped.masked_fill(dropped[:, :, None], -torch.inf)
        return grouped.flatten(1).topk(experts.chosen, -1).indices

    def routed(self, x: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
        """Tokens sorted by expert, one product per expert that has any."""
        order = chosen.flatten().argsort(stable=True)
        rows = x[order // chosen.shape[1]]
        counts = torch.bincount(chosen.flatten(), minlength=self.experts.count).tolist()
        parts = [
            expert(part, self.gate_up[index], self.down[index])
            for index, part in enumerate(torch.split(rows, counts))
            if len(part)
        ]
        outputs = torch.empty_like(rows)
        outputs[order] = torch.cat(parts)
        outputs = outputs.view(*chosen.shape, -1)
        return (outputs.float() * weight[:, :, None]).sum(1).to(x.dtype)


def expert(rows: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    count = len(rows)
    if count < FEWEST_ROWS and rows.device.type == "cpu":
        rows = F.pad(rows, (0, 0, 0, FEWEST_ROWS - count))
    return swiglu(rows, gate_up, down)[:count]


def swiglu(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(x, gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape))
