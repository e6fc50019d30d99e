"""The one network behind every native model: a bidirectional transformer, small enough to read.

LLaDA and Dream differ from each other, and from any Llama, only in numbers and names: RMSNorm,
rotary positions, grouped-query attention without a causal mask, SwiGLU. So the network is written
once, the families are rows of data (`llada.py`, `dream.py`), and no model's own code is run.

Query, key and value share one matrix, and so do the two halves of SwiGLU: a search runs thousands
of small forwards, where the number of operations costs as much as the arithmetic.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from s3dlm.errors import ModelError, SettingsError, unknown_name

BACKENDS: dict[str, SDPBackend | None] = {
    "auto": None,  # PyTorch chooses
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

# A row's features must not depend on its company: a search that packs its rows differently would
# else find another answer. On CPU a row's bits were seen to change with its padding only when its
# length was no multiple of 16 (probably where vectors end), and with its company only when matrices
# had fewer than 16 rows. So lengths are padded to a multiple here;
# tests/models/test_batch_invariance.py says how far this carries.
LENGTH_MULTIPLE = 16

Turns: TypeAlias = tuple[Tensor, Tensor]  # cosines and signed sines, (length, 1, head) each
Mask: TypeAlias = Tensor | None  # (rows, 1, 1 or length, keys), False where a key is not seen
KeysValues: TypeAlias = tuple[Tensor, Tensor]  # of one layer, (rows, heads, length, head) each


@dataclass(frozen=True, slots=True)
class Past:
    """What rows go on from: keys and values of positions that are not forwarded again."""

    layers: Tensor  # (layers, 2, rows, heads, padded length, head)
    lengths: Tensor  # (rows,) without padding


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The shape of a network; two configs that are equal hold the same tensors."""

    vocabulary: int  # rows of the embedding, and logits a position has
    width: int
    layers: int
    heads: int
    hidden: int  # inner width of SwiGLU
    mask_id: int
    context: int
    key_value_heads: int | None = None  # None: as many as heads
    head_width: int | None = None  # None: width / heads
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5
    qkv_bias: bool = False
    qk_norm: bool = False  # RMSNorm on each head's query and key
    tied: bool = False  # the head is the embedding
    causal_block: int | None = None  # positions see their own block of so many and those before

    def __post_init__(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise SettingsError(f"width={self.width} is not a multiple of heads={self.heads}")
        if self.heads % self.kv_heads:
            raise SettingsError(
                f"heads={self.heads} is not a multiple of key_value_heads={self.kv_heads}"
            )
        if self.head_size % 2:
            raise SettingsError(f"a head of width {self.head_size} is odd; rotary positions pair")
        if not 0 <= self.mask_id < self.vocabulary:
            raise SettingsError(f"mask_id={self.mask_id} is outside 0..{self.vocabulary - 1}")

    @property
    def kv_heads(self) -> int:
        return self.heads if self.key_value_heads is None else self.key_value_heads

    @property
    def head_size(self) -> int:
        return self.width // self.heads if self.head_width is None else self.head_width


class Block(nn.Module):
    """x + attention(norm(x)), then x + SwiGLU(norm(x))."""

    def __init__(self, config: TransformerConfig) -> None:
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
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        shape: tuple[int, int],
        turns: Turns,
        mask: Mask,
        past: Tensor | None = None,
        keep: list[KeysValues] | None = None,
    ) -> Tensor:
        """`x` is (rows × length, width): matrices stay flat, only attention sees the rows."""
        normal = rms_norm(x, self.attention_norm, self.epsilon)
        attended = self.attend(normal, shape, turns, mask, past, keep)
        x = torch.addmm(x, attended, self.out.weight.t())
        fed = rms_norm(x, self.feed_norm, self.epsilon)
        gate, up = F.linear(fed, self.gate_up.weight).chunk(2, -1)
        return torch.addmm(x, F.silu(gate).mul_(up), self.down.weight.t())

    def attend(
        self,
        x: Tensor,
        shape: tuple[int, int],
        turns: Turns,
        mask: Mask,
        past: Tensor | None,
        keep: list[KeysValues] | None,
    ) -> Tensor:
        turning = self.heads + self.kv_heads  # queries and keys turn; values do not
        qkv = F.linear(x, self.qkv.weight, self.qkv.bias)
        qkv = qkv.view(*shape, turning + self.kv_heads, self.size)
        turned = rotate(self.normalise_heads(qkv[:, :, :turning]), turns).transpose(1, 2)
        key, value = turned[:, self.heads :], qkv[:, :, turning:].transpose(1, 2)
        if keep is not None:
            keep.append((key, value))
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        attended = F.scaled_dot_product_attention(
            turned[:, : self.heads],
            key,
            value,
            attn_mask=mask,
            enable_gqa=self.kv_heads != self.heads,
        )
        return attended.transpose(1, 2).reshape(-1, self.heads * self.size)

    def normalise_heads(self, qk: Tensor) -> Tensor:
        if self.query_norm is None or self.key_norm is None:
            return qk
        query = rms_norm(qk[:, :, : self.heads], self.query_norm, self.epsilon)
        return torch.cat((query, rms_norm(qk[:, :, self.heads :], self.key_norm, self.epsilon)), 2)


class Transformer(nn.Module):
    """A `Denoiser` whose features are the last hidden states, normalised and ready for the head."""

    def __init__(self, config: TransformerConfig, attention: str = "auto") -> None:
        super().__init__()
        if attention not in BACKENDS:
            raise SettingsError(unknown_name("attention", attention, BACKENDS))
        self.config = config
        self.mask_id, self.vocabulary, self.context = (
            config.mask_id,
            config.vocabulary,
            config.context,
        )
        self.attention = attention
        self.prefix_cache = False  # whether searches may use one; see prefix.py
        # Normal numbers, its usual first weights, would import PyTorch's compiler on the meta device.
        first = nn.init.uniform_(torch.empty(config.vocabulary, config.width), -1.0, 1.0)
        embedding = nn.Embedding.from_pretrained(first, freeze=False)  # type: ignore[no-untyped-call]
        self.embedding: nn.Embedding = embedding
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.width))
        self.output = (
            None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        )
        self._turns: Turns | None = None

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def plain_cpu(self) -> bool:
        """Whether it runs in float32 on CPU, so that its logits can be written anywhere there."""
        return self.device.type == "cpu" and self.embedding.weight.dtype == torch.float32

    @property
    def tokens_at_once(self) -> int:
        """How large a forward pays: on CPU a larger one only falls out of the caches."""
        return 1024 if self.device.type == "cpu" else 16384

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise ModelError(
                f"a row of {length} tokens does not fit the model's context of {self.context}; "
                "shorten the prompt or the generation length"
            )
        return self.body(tokens, keys)

    def encode_after(
        self, tokens: Tensor, keys: Tensor | None, past: Past | None = None
    ) -> tuple[Tensor, list[KeysValues]]:
        """As `encode` for rows that go on from a past; also every layer's new keys and values."""
        layers: list[KeysValues] = []
        return self.body(tokens, keys, past, layers), layers

    def body(
        self,
        tokens: Tensor,
        keys: Tensor | None,
        past: Past | None = None,
        keep: list[KeysValues] | None = None,
    ) -> Tensor:
        length = tokens.shape[1]
        tokens, keys = whole_vectors(tokens, keys)
        rows, padded = tokens.shape
        turns, mask = self.turns_after(padded, tokens.device, past), self.mask(keys, padded, past)
        x = F.embedding(tokens.reshape(-1), self.embedding.weight)
        with self.backend():
            for index, block in enumerate(self.blocks):
                before = None if past is None else past.layers[index]
                x = block(x, (rows, padded), turns, mask, before, keep)
        x = rms_norm(x, self.norm, self.config.norm_epsilon)
        return x.view(rows, padded, -1)[:, :length]

    def mask(self, keys: Tensor | None, length: int, past: Past | None) -> Mask:
        """Which keys each position sees: no padding, and no later block if the model has blocks."""
        mask = None if keys is None else keys[:, None, None, :]
        if self.config.causal_block is not None:
            block = torch.arange(length, device=self.device) // self.config.causal_block
            seen = block[:, None] >= block[None, :]
            mask = seen if mask is None else mask & seen
        if past is None:
            return mask
        rows, room = past.lengths.shape[0], past.layers.shape[4]
        known = torch.arange(room, device=self.device) < past.lengths[:, None]
        if mask is None:
            mask = torch.ones(1, 1, 1, length, dtype=torch.bool, device=self.device)
        mask = mask.expand(rows, 1, *mask.shape[-2:])
        return torch.cat((known[:, None, None, :].expand(-1, -1, mask.shape[2], -1), mask), 3)

    def prefix_end(self, length: int) -> int:
        """How much of a prefix may be cached: whole blocks, if the model has blocks."""
        block = self.config.causal_block
        return length if block is None else length - length % block

    def head(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        """Logits; without gradients `out` may be memory for them, `LENGTH_MULTIPLE` rows or more."""
        weight = self.embedding.weight if self.output is None else self.output.weight
        few = features.shape[0]
        if features.dim() == 2 and few < LENGTH_MULTIPLE:
            features = F.pad(features, (0, 0, 0, LENGTH_MULTIPLE - few))
        if out is None:
            return F.linear(features, weight)[:few]
        return torch.mm(features, weight.t(), out=out[: features.shape[0]])[:few]

    def forward(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Logits of every position, for training."""
        return self.head(self.encode(tokens, keys))

    def initialise(self, generator: torch.Generator) -> None:
        """Fresh weights for training: normal, narrower where a layer writes to the residual."""
        narrow = 0.02 / math.sqrt(2 * self.config.layers)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith(("out.weight", "down.weight")):
                    parameter.normal_(0.0, narrow, generator=generator)
                elif name.endswith("bias"):
                    parameter.zero_()
                elif parameter.dim() == 1:
                    parameter.fill_(1.0)
                else:
                    parameter.normal_(0.0, 0.02, generator=generator)

    def backend(self) -> AbstractContextManager[None]:
        choice = BACKENDS[self.attention]
        return nullcontext() if choice is None else sdpa_kernel(choice)

    def turns(self, length: int, device: torch.device) -> Turns:
        """Cosines and signed sines of the first `length` positions, (length, 1, head) in fp32."""
        kept = self._turns
        if kept is None or kept[0].shape[0] < length or kept[0].device != device:
            with torch.inference_mode(False):  # training may follow, and inference tensors cannot
                kept = rotary_turns(self.config, max(length, min(512, self.context)), device)
            self._turns = kept
        return kept[0][:length], kept[1][:length]

    def turns_after(self, length: int, device: torch.device, past: Past | None) -> Turns:
        """Those of the next `length` positions of each row."""
        if past is None:
            return self.turns(length, device)
        cos, sin = self.turns(past.layers.shape[4] + length, device)
        places = past.lengths[:, None] + torch.arange(length, device=device)
        return cos[places], sin[places]


def rotary_turns(config: TransformerConfig, length: int, device: torch.device) -> Turns:
    """The angles position × θ^(−2i/head), as factors for `rotate`."""
    even = torch.arange(0, config.head_size, 2, device=device, dtype=torch.float32)
    speeds = 1.0 / config.rope_theta ** (even / config.head_size)
    positions = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, speeds)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, turns: Turns) -> Tensor:
    """Turn each pair (i, i + half) of a head; the sign of the first half is already in the sine."""
    cos, sin = turns
    swapped = x.roll(x.shape[-1] // 2, -1).to(cos.dtype)
    return swapped.mul_(sin).addcmul_(x.to(cos.dtype), cos).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / √(mean x² + ε) × weight; on CPU in fewer passes than PyTorch's own, which is no kernel."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return F.rms_norm(x, weight.shape, weight, epsilon)
    size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = (size * size).mul_(1 / x.shape[-1]).add_(epsilon).rsqrt_()
    return (x * scale).mul_(weight)


def whole_vectors(tokens: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Rows padded to a multiple of `LENGTH_MULTIPLE`, on CPU, where that makes a row's bits its own."""
    missing = -tokens.shape[1] % LENGTH_MULTIPLE
    if not missing or tokens.device.type != "cpu":
        return tokens, keys
    keys = torch.ones_like(tokens, dtype=torch.bool) if keys is None else keys
    return F.pad(tokens, (0, missing)), F.pad(keys, (0, missing), value=False)
