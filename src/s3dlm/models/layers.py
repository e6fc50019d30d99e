"""The parts of the native network: its layers (attention, then SwiGLU or a mixture of experts), positions."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm.errors import ModelError
from s3dlm.models.family import Experts, TransformerConfig, Yarn
from s3dlm.models.packing import LENGTH_MULTIPLE

# Cosines and signed sines, (length, 1, rotated) each, and what queries are multiplied by, (length, 1, 1).
Rope: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
Mask: TypeAlias = Tensor | None  # (rows, 1 or heads, 1 or length, keys), False where none is seen
KeysValues: TypeAlias = tuple[Tensor, Tensor]  # of one layer, (rows, heads, length, head) each


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: TransformerConfig, index: int = 0) -> None:
        super().__init__()
        size, width = config.head_size, config.width
        self.heads, self.kv_heads, self.size = config.heads, config.kv_heads, size
        self.epsilon = config.norm_epsilon
        self.attention_norm = nn.Parameter(torch.ones(width))
        stacked = (config.heads + 2 * config.kv_heads) * size
        self.qkv = nn.Linear(width, stacked, bias=config.qkv_bias)
        self.query_norm = nn.Parameter(torch.ones(size)) if config.qk_norm else None
        self.key_norm = nn.Parameter(torch.ones(size)) if config.qk_norm else None
        self.out = nn.Linear(config.heads * size, width, bias=False)
        self.feed_norm = nn.Parameter(torch.ones(width))
        experts = config.experts_of(index)
        self.mixture = None if experts is None else Mixture(experts, width)
        if experts is None:
            self.gate_up = nn.Linear(width, 2 * config.hidden, bias=False)
            self.down = nn.Linear(config.hidden, width, bias=False)

    def forward(
        self,
        x: Tensor,
        shape: tuple[int, int],
        rope: Rope | None,
        mask: Mask,
        past: Tensor | None = None,
        keep: list[KeysValues] | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """`x` is (rows × length, width): matrices stay flat, only attention sees the rows. Returned are all
        positions, or those that are wanted."""
        heads, rotating = self.heads, self.heads + self.kv_heads  # values are not rotated
        qkv = self.qkv(rms_norm(x, self.attention_norm, self.epsilon))
        qkv = qkv.view(*shape, rotating + self.kv_heads, self.size)
        qk = qkv[:, :, :rotating]
        if self.query_norm is not None and self.key_norm is not None:
            query = rms_norm(qk[:, :, :heads], self.query_norm, self.epsilon)
            qk = torch.cat((query, rms_norm(qk[:, :, heads:], self.key_norm, self.epsilon)), 2)
        rotated = (qk if rope is None else rotate(qk, rope)).transpose(1, 2)
        query, key = rotated[:, :heads], rotated[:, heads:]
        if rope is not None and rope[2] is not None:
            query = query * rope[2].transpose(-3, -2).to(query.dtype)
        value = qkv[:, :, rotating:].transpose(1, 2)
        if keep is not None:
            keep.append((key, value))
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        shared = heads // self.kv_heads
        if shared > 1 and mask is not None and query.device.type == "cuda":
            # The fast CUDA kernel that takes a mask does not take grouped heads.
            key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
            shared = 1
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=shared > 1
        )
        attended = attended.transpose(1, 2).reshape(-1, heads * self.size)
        if wanted is not None:
            x, attended = x.index_select(0, wanted), attended.index_select(0, wanted)
        x = add_linear(x, self.out, attended)
        fed = rms_norm(x, self.feed_norm, self.epsilon)
        if self.mixture is not None:
            mixed: Tensor = self.mixture(fed)
            return x + mixed
        gate, up = self.gate_up(fed).chunk(2, -1)
        return add_linear(x, self.down, F.silu(gate).mul_(up))


class Mixture(nn.Module):
    """A mixture of experts: each token goes through the few feed-forward layers its router chooses.

    Two routers exist in the models we run: softmax (LLaDA-MoE, SDAR-MoE), and sigmoid with a bias
    that is used for choosing only, among the best groups of experts (LLaDA2). The weights of all
    experts are stacked, so that loading and counting see few parameters.
    """

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
            swiglu(part, self.gate_up[index], self.down[index])
            for index, part in enumerate(torch.split(rows, counts))
            if len(part)
        ]
        outputs = torch.empty_like(rows)
        outputs[order] = torch.cat(parts)
        outputs = outputs.view(*chosen.shape, -1)
        return (outputs.float() * weight[:, :, None]).sum(1).to(x.dtype)


class Grid(nn.Module):
    """What a network on Sudoku grids has in place of rotary positions.

    A row of tokens is a grid of n²×n² cells, row by row. Every cell's embedding says in which row,
    column and box it stands, and each head of each layer has a learned bias for two cells that share
    a row, a column or a box.
    """

    def __init__(self, order: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.order, self.cells = order, order**4
        self.places = nn.Parameter(torch.zeros(3 * order**2, width))  # rows, then columns, boxes
        self.bias = nn.Parameter(torch.zeros(layers, heads, 3))

    def check(self, length: int) -> None:
        if length != self.cells:
            side = self.order**2
            raise ModelError(
                f"a row of {length} tokens is no grid; the model reads grids of {side}×{side}, which "
                f"have {self.cells} cells"
            )

    def place(self, padded: int) -> Tensor:
        """(padded length, width) what is added to each cell's embedding; padding gets nothing."""
        side = self.order**2
        first = torch.arange(3, device=self.places.device)[:, None] * side
        places = F.embedding(self.units() + first, self.places).sum(0)
        return F.pad(places, (0, 0, 0, padded - self.cells))

    def attention(self, padded: int) -> Tensor:
        """(layers, 1, heads, padded length, padded length) added to the logits of attention."""
        units = self.units()
        shared = (units[:, :, None] == units[:, None, :]).to(self.bias.dtype)
        bias = (self.bias @ shared.flatten(1)).view(*self.bias.shape[:2], self.cells, self.cells)
        missing = padded - self.cells
        bias = F.pad(F.pad(bias, (0, missing), value=-torch.inf), (0, 0, 0, missing))
        return bias[:, None]

    def units(self) -> Tensor:
        """(3, cells) the row, column and box of every cell."""
        cell = torch.arange(self.cells, device=self.places.device)
        side = self.order**2
        row, column = cell // side, cell % side
        box = row // self.order * self.order + column // self.order
        return torch.stack((row, column, box))


def add_linear(x: Tensor, layer: nn.Linear, y: Tensor) -> Tensor:
    """x + layer(y): in one kernel where the weight is a plain matrix, by the layer where it is not
    (quantised, or in parts on several devices)."""
    if is_plain(layer.weight):
        return F.linear(y, layer.weight, x)
    added: Tensor = x + layer(y)
    return added


def is_plain(weight: Tensor) -> bool:
    return type(weight) is nn.Parameter  # a parameter of another kind keeps its own type


def swiglu(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(with_full_rows(x), gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)[: len(x)]


def with_full_rows(x: Tensor) -> Tensor:
    """On CPU as many rows more as make a multiple, so that none is left to another kernel."""
    missing = -len(x) % LENGTH_MULTIPLE if x.device.type == "cpu" else 0
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape))


def rope_cos_sin(config: TransformerConfig, length: int, device: torch.device) -> Rope:
    """Cosine and signed sine of the angles position × θ^(−2i/rotated), as factors for `rotate`."""
    yarn = config.yarn
    even = torch.arange(0, config.rotated, 2, device=device, dtype=torch.float32)
    speeds = 1.0 / config.rope_theta ** (even / config.rotated)
    if yarn is not None:
        slowed = yarn_ramp(yarn, config.rope_theta, config.rotated).to(device)
        speeds = speeds * (1 - slowed) + speeds / yarn.factor * slowed
    positions = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, speeds)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    scale = None
    if yarn is not None:
        cos, sin = cos * yarn.attention, sin * yarn.attention
        if yarn.query_beta:
            turns = (positions / yarn.original).floor()
            scale = (1 + yarn.query_beta * turns.log1p())[:, None, None]
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1), scale


def yarn_ramp(yarn: Yarn, theta: float, rotated: int) -> Tensor:
    """(rotated / 2,) how far each pair is slowed: from 0 for the fast ones to 1 for the slow ones."""
    first, last = (
        rotated * math.log(yarn.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (yarn.fast, yarn.slow)
    )
    if yarn.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotated - 1)
    if first == last:
        last += 0.001
    pairs = torch.arange(rotated // 2, dtype=torch.float32)
    return ((pairs - first) / (last - first)).clamp(0, 1)


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotate each pair (i, i + half) of a head; the sine already has the sign of the first half."""
    cos, sin, _ = rope
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat((rotate(x[..., :size], rope), x[..., size:]), -1)
    swapped = x.roll(size // 2, -1).to(cos.dtype)
    return swapped.mul_(sin).addcmul_(x.to(cos.dtype), cos).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / √(mean x² + ε) × weight; on CPU in fewer passes than PyTorch's own, which is no kernel."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return F.rms_norm(x, weight.shape, weight, epsilon)
    size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = (size * size).mul_(1 / x.shape[-1]).add_(epsilon).rsqrt_()
    return (x * scale).mul_(weight)
