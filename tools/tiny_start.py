"""First weights for tiny: attention that already looks at neighbours and finds what stands elsewhere.

From random weights a network this small sees tens of millions of tokens before it learns to look
something up in the question. Here the first layer's heads look at the tokens one and two places away,
and those of the next two layers at places with the same neighbours (an induction head): where to look
is given, what to do with it is learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s3dlm.models.block import Block, rope_cos_sin, rotate
from s3dlm.models.config import TransformerConfig
from s3dlm.models.transformer import Transformer

OFFSETS = (-1, 1, -2, 2)
CONSTANT = 0.5  # every embedding's first number: queries and keys of a fixed offset come from it
FAST_PAIRS = 6  # rotary pairs that tell one place from the next; the slower ones compare contents
SHARPNESS, MATCH, COPY = 6.0, 1.2, 0.5


def start(model: Transformer, generator: torch.Generator) -> None:
    """Give a network its first weights."""
    model.initialise(generator)
    with torch.no_grad():
        embedding = model.embedding.weight
        embedding.normal_(0.0, 0.1, generator=generator)
        embedding[:, 0] = CONSTANT
        model.norm.fill_(0.5)
        constant = float((embedding[:, 0] / embedding.pow(2).mean(1).sqrt()).mean())
        written = look_at_neighbours(model.blocks[0], model.config, constant, generator)
        look_for_matches(model.blocks[1], model.config, written, generator)
        look_for_matches(model.blocks[2], model.config, written[1:] + written[:1], generator)


def orthogonal(width: int, generator: torch.Generator) -> Tensor:
    """A random rotation of the residual stream."""
    return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]


def look_at_neighbours(
    block: Block, config: TransformerConfig, constant: float, generator: torch.Generator
) -> list[Tensor]:
    """Each head looks at one offset; returns the directions into which it writes what it sees."""
    size = config.head_size
    query, key, value = block.qkv.weight.chunk(3)
    cos, sin = rope_cos_sin(config, max(OFFSETS) + 1, query.device)
    looking = torch.zeros(1, 1, size)
    looking[..., :FAST_PAIRS] = SHARPNESS / constant
    written = []
    for head in range(config.heads):
        part = slice(head * size, (head + 1) * size)
        offset = OFFSETS[head % len(OFFSETS)]
        # The key at i + offset must meet the query at i after rotary positions rotated both.
        back = cos[abs(offset)], sin[abs(offset)] * (-1 if offset > 0 else 1)
        query[part, 0], key[part, 0] = looking.flatten(), rotate(looking, back).flatten()
        reading, writing = (orthogonal(config.width, generator)[:size] for _ in range(2))
        reading[:, 0] = 0
        value[part], block.out.weight[:, part] = COPY * reading, COPY * writing.t()
        written.append(writing)
    return written


def look_for_matches(
    block: Block, config: TransformerConfig, written: list[Tensor], generator: torch.Generator
) -> None:
    """Each head looks at places with the same neighbour as its own and copies their tokens."""
    size, half = config.head_size, config.head_size // 2
    slow = torch.tensor([*range(FAST_PAIRS, half), *range(half + FAST_PAIRS, size)])
    query, key, value = block.qkv.weight.chunk(3)
    tokens = orthogonal(config.width, generator)
    for head, neighbour in enumerate(written):
        part = slice(head * size, (head + 1) * size)
        rows = head * size + slow
        query[rows] += MATCH * neighbour[: len(slow)]
        key[rows] += MATCH * neighbour[: len(slow)]
        reading = tokens[part].clone()
        reading[:, 0] = 0
        value[part], block.out.weight[:, part] = COPY * reading, COPY * reading.t()
