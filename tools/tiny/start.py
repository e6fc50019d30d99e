"""First weights for tiny: attention that already looks at neighbours and finds what stands elsewhere.

The first layer's heads look at the tokens one and two places away; those of the next two layers look at
places with the same neighbour (an induction head), or for the token beside them elsewhere, and read what
precedes it there. Where to look is given, what to do with it is learned. After half a million tokens of the
drill `repeat` alone the loss was 1.6 from weights like these and 2.9 from random ones, all else equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s3dlm.models.family import TransformerConfig
from s3dlm.models.layers import Block, rope_cos_sin, rotate
from s3dlm.models.transformer import Transformer
from tools.networks import initialise

OFFSETS = (-1, 1, -2, 2)
CONSTANT = 0.5  # every embedding's first number: queries and keys of a fixed offset come from it
FAST_PAIRS = 6  # rotary pairs that tell one place from the next; the slower ones compare contents
SHARPNESS, MATCH, FIND, COPY = 6.0, 1.2, 1.6, 0.5


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What a head of the first layer sees: the directions it reads there, and those it writes."""

    offset: int
    read: Tensor  # (head size, width)
    written: Tensor  # (head size, width)


def start(model: Transformer, generator: torch.Generator) -> None:
    """Give a network its first weights."""
    initialise(model, generator)
    with torch.no_grad():
        embedding = model.embedding.weight
        embedding.normal_(0.0, 0.1, generator=generator)
        embedding[:, 0] = CONSTANT
        model.norm.fill_(0.5)
        constant = float((embedding[:, 0] / embedding.pow(2).mean(1).sqrt()).mean())
        seen = look_at_neighbours(model.blocks[0], model.config, constant, generator)
        look_for_matches(model.blocks[1], model.config, seen, generator)
        look_for_matches(model.blocks[2], model.config, seen[1:] + seen[:1], generator)
        look_for_tokens(model.blocks[2], model.config, seen, generator)


def orthogonal(width: int, generator: torch.Generator) -> Tensor:
    """A random rotation of the residual stream."""
    return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]


def look_at_neighbours(
    block: Block, config: TransformerConfig, constant: float, generator: torch.Generator
) -> list[Neighbour]:
    """Each head looks at one offset and writes what it sees into directions of its own."""
    size = config.head_size
    query, key, value = block.qkv.weight.chunk(3)
    cos, sin, _ = rope_cos_sin(config, max(OFFSETS) + 1, query.device)
    looking = torch.zeros(1, 1, size)
    looking[..., :FAST_PAIRS] = SHARPNESS / constant
    seen = []
    for head in range(config.heads):
        part = slice(head * size, (head + 1) * size)
        offset = OFFSETS[head % len(OFFSETS)]
        # The key at i + offset must meet the query at i after rotary positions rotated both.
        back = cos[abs(offset)], sin[abs(offset)] * (-1 if offset > 0 else 1), None
        query[part, 0], key[part, 0] = looking.flatten(), rotate(looking, back).flatten()
        reading, writing = (orthogonal(config.width, generator)[:size] for _ in range(2))
        reading[:, 0] = 0
        value[part], block.out.weight[:, part] = COPY * reading, COPY * writing.t()
        seen.append(Neighbour(offset, reading, writing))
    return seen


def look_for_matches(
    block: Block, config: TransformerConfig, seen: list[Neighbour], generator: torch.Generator
) -> None:
    """Each head looks at places with the same neighbour as its own and copies their tokens."""
    value = block.qkv.weight.chunk(3)[2]
    tokens = orthogonal(config.width, generator)
    for head, neighbour in enumerate(seen):
        _compare(block, config, head, MATCH * neighbour.written, MATCH * neighbour.written)
        part = slice(head * config.head_size, (head + 1) * config.head_size)
        reading = tokens[part].clone()
        reading[:, 0] = 0
        value[part], block.out.weight[:, part] = COPY * reading, COPY * reading.t()


def look_for_tokens(
    block: Block, config: TransformerConfig, seen: list[Neighbour], generator: torch.Generator
) -> None:
    """A head for each offset to the left looks for the token there elsewhere: what is before it?"""
    value = block.qkv.weight.chunk(3)[2]
    previous = next(one for one in seen if one.offset == -1)
    for head, neighbour in enumerate(one for one in seen if one.offset < 0):
        _compare(block, config, head, FIND * neighbour.written, FIND * neighbour.read)
        part = slice(head * config.head_size, (head + 1) * config.head_size)
        writing = orthogonal(config.width, generator)[: config.head_size]
        value[part], block.out.weight[:, part] = COPY * previous.written, COPY * writing.t()


def _compare(
    block: Block, config: TransformerConfig, head: int, asked: Tensor, offered: Tensor
) -> None:
    """Queries ask for what keys offer, in the slow rotary pairs; the fast ones are left as they are."""
    half = config.head_size // 2
    slow = torch.tensor([*range(FAST_PAIRS, half), *range(half + FAST_PAIRS, config.head_size)])
    query, key, _ = block.qkv.weight.chunk(3)
    rows = head * config.head_size + slow
    query[rows], key[rows] = asked[: len(slow)], offered[: len(slow)]
