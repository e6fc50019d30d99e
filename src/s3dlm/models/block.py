"""One layer of the native network: attention, then SwiGLU or a mixture of experts."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm.models.config import TransformerConfig
from s3dlm.models.mixture import Mixture

Rope: TypeAlias = tuple[Tensor, Tensor]  # cosines and signed sines, (length, 1, rotated) each
Mask: TypeAlias = Tensor | None  # (rows, 1, 1 or length, keys), False where a key is not seen
KeysValues: TypeAlias = tuple[Tensor, Tensor]  # of one layer, (rows, heads, length, head) each


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: TransformerConfig, index: int = 0) -> None:
        super().__init__()
        size = config.head_size
        self.heads, self.kv_heads, self.size = config.heads, config.kv_heads, size
        self.epsilon = config.norm_epsilon
        self.attention_norm = nn.Parameter(torch.ones(config.width))
        self.qkv = nn.Linear(
            config.width, (config.heads + 2 * config.kv_heads) * size, bias=config.qkv_bias
        )
        self.query_norm = nn.Parameter(torch.ones(size)) if config.qk_norm else None
        self.key_norm = nn.Parameter(torch.ones(size)) if config.qk_norm else None
        self.out = nn.Linear(config.heads * size, config.width, bias=False)
        self.feed_norm = nn.Parameter(torch.ones(config.width))
        self.mixture: Mixture | None = None
        if config.experts is not None and config.is_mixture(index):
            self.mixture = Mixture(config.experts, config.width)
        else:
            self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
            self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        shape: tuple[int, int],
        rope: Rope,
        mask: Mask,
        past: Tensor | None = None,
        keep: list[KeysValues] | None = None,
    ) -> Tensor:
        """`x` is (rows × length, width): matrices stay flat, only attention sees the rows."""
        normal = rms_norm(x, self.attention_norm, self.epsilon)
        attended = self.attend(normal, shape, rope, mask, past, keep)
        x = torch.addmm(x, attended, self.out.weight.t())
        fed = rms_norm(x, self.feed_norm, self.epsilon)
        if self.mixture is not None:
            mixed: Tensor = self.mixture(fed)
            return x + mixed
        gate, up = F.linear(fed, self.gate_up.weight).chunk(2, -1)
        return torch.addmm(x, F.silu(gate).mul_(up), self.down.weight.t())

    def attend(
        self,
        x: Tensor,
        shape: tuple[int, int],
        rope: Rope,
        mask: Mask,
        past: Tensor | None,
        keep: list[KeysValues] | None,
    ) -> Tensor:
        rotating = self.heads + self.kv_heads  # queries and keys; values are not rotated
        qkv = F.linear(x, self.qkv.weight, self.qkv.bias)
        qkv = qkv.view(*shape, rotating + self.kv_heads, self.size)
        rotated = rotate(self.normalise_heads(qkv[:, :, :rotating]), rope).transpose(1, 2)
        key, value = rotated[:, self.heads :], qkv[:, :, rotating:].transpose(1, 2)
        if keep is not None:
            keep.append((key, value))
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        attended = grouped_attention(rotated[:, : self.heads], key, value, mask)
        return attended.transpose(1, 2).reshape(-1, self.heads * self.size)

    def normalise_heads(self, qk: Tensor) -> Tensor:
        if self.query_norm is None or self.key_norm is None:
            return qk
        query = rms_norm(qk[:, :, : self.heads], self.query_norm, self.epsilon)
        return torch.cat((query, rms_norm(qk[:, :, self.heads :], self.key_norm, self.epsilon)), 2)


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    """Attention whose heads may share keys and values."""
    shared = query.shape[1] // key.shape[1]
    if shared > 1 and mask is not None and query.device.type == "cuda":
        # The fast CUDA kernel that takes a mask does not take grouped heads.
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
        shared = 1
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=shared > 1)


def rope_cos_sin(config: TransformerConfig, length: int, device: torch.device) -> Rope:
    """Cosine and signed sine of the angles position × θ^(−2i/rotated), as factors for `rotate`."""
    even = torch.arange(0, config.rotated, 2, device=device, dtype=torch.float32)
    speeds = 1.0 / config.rope_theta ** (even / config.rotated)
    positions = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, speeds)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotate each pair (i, i + half) of a head; the sine already has the sign of the first half."""
    cos, sin = rope
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
