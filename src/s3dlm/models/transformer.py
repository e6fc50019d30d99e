"""The one network behind every native model: a bidirectional transformer, small enough to read.

The open diffusion language models differ from each other, and from any Llama, only in numbers and
names: RMSNorm, rotary positions, grouped-query attention without a causal mask, SwiGLU or a mixture
of experts. So the network is written once, the families are rows of data (families.py), and no
model's own code is run.

Query, key and value share one matrix, and so do the two halves of SwiGLU: a search runs thousands
of small forward passes, where the number of operations costs as much as the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser, Past
from s3dlm.models.cache import DualCache, PrefixCache
from s3dlm.models.family import TransformerConfig as TransformerConfig
from s3dlm.models.layers import (
    Block,
    Grid,
    KeysValues,
    Mask,
    Rope,
    is_plain,
    rms_norm,
    rope_cos_sin,
    with_full_rows,
)
from s3dlm.models.packing import LENGTH_MULTIPLE
from s3dlm.models.sampling import shift_right


class Transformer(nn.Module, Denoiser):
    """A `Denoiser` whose features are the last hidden states, normalised and ready for the head."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.mask_id, self.vocabulary = config.mask_id, config.vocabulary
        self.context, self.causal_block = config.context, config.causal_block
        self.text_vocabulary, self.shift = config.text_vocabulary, config.shift
        self.causal_prefix = config.causal_prefix
        self.diffusion = "masked" if config.mask_id >= 0 else "uniform"
        self.dual_cache: int | None = (
            None  # run open blocks alone, and every so many passes whole rows
        )
        # Normal numbers, its usual first weights, would import PyTorch's compiler on the meta device.
        first = nn.init.uniform_(torch.empty(config.vocabulary, config.width), -1.0, 1.0)
        embedding = nn.Embedding.from_pretrained(first, freeze=False)  # type: ignore[no-untyped-call]
        self.embedding: nn.Embedding = embedding
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.width))
        head = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.output = head
        shape = (config.width, config.layers, config.heads)
        self.grid = None if config.grid is None else Grid(config.grid, *shape)
        self.whole = config.grid is not None
        self._rope: Rope | None = None

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.embedding.weight.device

    @property
    def tokens_at_once(self) -> int:  # type: ignore[override]
        """The largest useful batch: on CPU a larger one only falls out of the caches."""
        return 1024 if self.device.type == "cpu" else 16384

    def encode(
        self, tokens: Tensor, keys: Tensor | None = None, wanted: Tensor | None = None
    ) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise ModelError(
                f"a row of {length} tokens does not fit the model's context of {self.context}; "
                "shorten the prompt or the generation length"
            )
        if self.causal_prefix:
            raise ModelError(
                "this model reads what is before the open block otherwise than the block, so it runs "
                "on one device, and without guidance: leave it out"
            )
        if self.grid is not None:
            self.grid.check(length)
        if self.config.shift:
            return shift_right(self.body(tokens, keys))
        return self.body(tokens, keys, wanted=wanted)

    def encode_some(self, tokens: Tensor, keys: Tensor | None, wanted: Tensor) -> Tensor:
        """The last layer's feed-forward part runs for what is wanted alone; all else is 0."""
        return self.encode(tokens, keys, wanted)

    def reader(self) -> PrefixCache | None:
        """A cache of keys and values: exact with blocks, else the dual cache, if it was asked for; a grid
        is never read in parts."""
        if self.dual_cache is not None:
            return DualCache(self, self.dual_cache)
        exact = self.causal_block is not None and self.grid is None
        return PrefixCache(self) if exact else None

    def encode_after(
        self,
        tokens: Tensor,
        keys: Tensor | None,
        past: Past | None = None,
        opening: Tensor | None = None,
    ) -> tuple[Tensor, list[KeysValues]]:
        """Features, not shifted, of rows that continue from a past, and each layer's new keys and
        values; a block-causal model's past ends with a block."""
        layers: list[KeysValues] = []
        return self.body(tokens, keys, past, layers, opening), layers

    def body(
        self,
        tokens: Tensor,
        keys: Tensor | None,
        past: Past | None = None,
        keep: list[KeysValues] | None = None,
        opening: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        length = tokens.shape[1]
        tokens, keys = whole_vectors(tokens, keys)
        rows, padded = tokens.shape
        if (
            wanted is not None
        ):  # whole vectors of them, too; the first position stands for what is missing
            missing = -len(wanted) % LENGTH_MULTIPLE
            wanted = F.pad(wanted, (0, missing)) if padded == length and len(wanted) else None
        rope, mask = self.rope(padded, tokens.device, past), self.mask(keys, padded, past, opening)
        x = self.embedding(tokens.reshape(-1))
        masks = [mask] * len(self.blocks)
        if self.grid is not None:
            x = (x.view(rows, padded, -1) + self.grid.place(padded)).view(rows * padded, -1)
            masks = list(self.grid.attention(padded))
        for index, block in enumerate(self.blocks):
            before = None if past is None else past.layers[index]
            last = wanted if index == len(self.blocks) - 1 else None
            x = block(x, (rows, padded), rope, masks[index], before, keep, last)
        x = rms_norm(x, self.norm, self.config.norm_epsilon)
        if wanted is not None:
            x = x.new_zeros(rows * padded, x.shape[1]).index_copy_(0, wanted, x)
        return x.view(rows, padded, -1)[:, :length]

    def mask(
        self, keys: Tensor | None, length: int, past: Past | None, opening: Tensor | None = None
    ) -> Mask:
        """Which keys each position sees; None if every position sees all of them, because only
        then can PyTorch choose its fastest kernel."""
        mask = None if keys is None else keys[:, None, None, :]
        if opening is not None:
            place = torch.arange(length, device=self.device)
            seen = (place[:, None] >= place) | (place[:, None] >= opening[:, None, None])
            mask = seen[:, None] if mask is None else mask & seen[:, None]
        elif (
            self.causal_block is not None and not self.causal_prefix and length > self.causal_block
        ):
            block = torch.arange(length, device=self.device) // self.causal_block
            seen = block[:, None] >= block[None, :]
            mask = seen[None, None] if mask is None else mask & seen
        if past is None or (mask is None and not past.padded):
            return mask
        rows, room = past.lengths.shape[0], past.layers.shape[4]
        known = torch.arange(room, device=self.device) < past.lengths[:, None]
        if mask is None:
            mask = torch.ones(1, 1, 1, length, dtype=torch.bool, device=self.device)
        mask = mask.expand(rows, 1, *mask.shape[-2:])
        return torch.cat((known[:, None, None, :].expand(-1, -1, mask.shape[2], -1), mask), 3)

    @property
    def head_weight(self) -> Tensor:
        return self.embedding.weight if self.output is None else self.output.weight

    def head(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        """Logits; without gradients `out` may be memory for them, a multiple of `LENGTH_MULTIPLE` rows."""
        few = features.shape[0]
        if features.dim() == 2:
            features = with_full_rows(features)
        if out is not None:
            return torch.mm(features, self.head_weight.t(), out=out[: features.shape[0]])[:few]
        if self.output is None:
            return F.linear(features, self.embedding.weight)[:few]
        logits: Tensor = self.output(features)
        return logits[:few]

    def head_in_place(self, positions: int) -> Callable[[Tensor], Tensor]:
        """On CPU all logits go to one memory: fresh memory is mapped page by page, which costs
        nearly as much as reading them."""
        weight = self.head_weight
        if self.device.type != "cpu" or weight.dtype != torch.float32 or not is_plain(weight):
            return self.head
        rows = -(-positions // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        return partial(self.head, out=torch.empty(rows, self.vocabulary))

    def forward(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Logits of every position, for training."""
        return self.head(self.encode(tokens, keys))

    def rope(self, length: int, device: torch.device, past: Past | None) -> Rope | None:
        """Rotary factors of the next `length` positions of each row; those of the first positions
        are kept between calls in float32. A grid has none."""
        if self.grid is not None:
            return None
        last = length if past is None else past.layers.shape[4] + length
        kept = self._rope
        if kept is None or kept[0].shape[0] < last or kept[0].device != device:
            with torch.inference_mode(False):  # training may follow, and inference tensors cannot
                kept = rope_cos_sin(self.config, max(last, min(512, self.context)), device)
            self._rope = kept
        cos, sin, scale = kept
        places: slice | Tensor = slice(length)
        if past is not None:
            places = past.starts[:, None] + torch.arange(length, device=device)
        return cos[places], sin[places], None if scale is None else scale[places]


def whole_vectors(tokens: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """On CPU, rows padded to a multiple of `LENGTH_MULTIPLE`.

    A row's features must not depend on the other rows of its batch: a search that is batched
    differently would else find another answer. tests/models/test_batch_invariance.py says how far
    this carries.
    """
    missing = -tokens.shape[1] % LENGTH_MULTIPLE
    if not missing or tokens.device.type != "cpu":
        return tokens, keys
    keys = torch.ones_like(tokens, dtype=torch.bool) if keys is None else keys
    return F.pad(tokens, (0, missing)), F.pad(keys, (0, missing), value=False)
