"""Muon for matrices, AdamW for the rest: about twice the progress a token of AdamW alone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """The nearest (semi-)orthogonal matrices, by the quintic Newton–Schulz iteration."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    for _ in range(rounds):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if flip else x


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal; matrices of one shape are treated as one stack."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, decay: float = 0.1) -> None:
        super().__init__(matrices, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            stacks: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for parameter in group["params"]:
                for weight, update in self._parts(parameter):
                    stacks.setdefault(weight.shape, []).append((weight, update))
            for shape, pairs in stacks.items():
                steps = orthogonal(torch.stack([update for _, update in pairs]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for (weight, _), step in zip(pairs, steps, strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"]).sub_(step, alpha=scale)

    def _parts(self, parameter: nn.Parameter) -> list[tuple[Tensor, Tensor]]:
        """Nesterov's update, cut into the square-ish matrices that were fused for speed."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        momentum: Tensor = state["momentum"].lerp_(parameter.grad, 0.05)
        update = parameter.grad.lerp(momentum, 0.95)
        count = getattr(parameter, "fused", 1)
        return list(zip(parameter.data.chunk(count), update.chunk(count), strict=True))


def optimisers(model: nn.Module, matrix: float, rest: float) -> list[torch.optim.Optimizer]:
    """Both optimisers for a transformer with fused query-key-value and gate-up matrices."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "blocks" in name:
            parameter.fused = 3 if "qkv" in name else 2 if "gate_up" in name else 1  # type: ignore[attr-defined]
            matrices.append(parameter)
        else:
            others.append(parameter)
    adam = torch.optim.AdamW(others, lr=rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [Muon(matrices, matrix), adam]
