"""`noisy9`: the sister of `sudoku9` that denoises uniform noise.

It has no mask. A cell holds a clue, which is a token of its own (the digits once more), or a digit that is
right or drawn at random, and the network is not told which. So it starts from the weights of `sudoku9`:
clues as that reads digits, all other cells nearly as that reads masks. What the digits of the canvas
are worth is what it learns.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from s3dlm.models.base import Denoiser
from s3dlm.models.transformer import Transformer, TransformerConfig

DIGITS = 9
CONFIG = TransformerConfig(
    vocabulary=2 * DIGITS, text_vocabulary=DIGITS, mask_id=-1, width=64, layers=5, heads=4,
    hidden=128, context=81, grid=3,
)  # fmt: skip
FIRST = 0.1  # how much of a digit's embedding a cell of the canvas has beside the mask's


def start(masked: Denoiser) -> Transformer:
    """The network before training, from the one that reads masks."""
    model, old = Transformer(CONFIG), cast(Transformer, masked).state_dict()
    digits, mask = old["embedding.weight"][:DIGITS], old["embedding.weight"][DIGITS]
    head = old["output.weight"][:DIGITS]
    own = {
        "embedding.weight": torch.cat([mask + FIRST * digits, digits]),
        "output.weight": torch.cat([head, torch.zeros_like(head)]),
    }
    model.load_state_dict({name: value.clone() for name, value in {**old, **own}.items()})
    return model


def loss_of(
    model: Transformer, cells: Tensor, masked: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """The cross-entropy of all cells that are no clues, each weighted by one over their number. Of every
    grid another share of them, from none to all, is drawn at random."""
    share = torch.rand(len(cells), 1, generator=generator)
    noisy = masked & (torch.rand(cells.shape, generator=generator) < share)
    drawn = torch.randint(DIGITS, cells.shape, generator=generator)
    canvas = torch.where(masked, torch.where(noisy, drawn, cells), cells + DIGITS)
    weight = (masked / masked.sum(1, keepdim=True)).flatten()
    where = weight.nonzero()[:, 0]
    logits = model.head(model.encode(canvas).flatten(0, 1)[where])[:, :DIGITS]
    each = F.cross_entropy(logits, cells.flatten()[where], reduction="none")
    return (each * weight[where]).sum() / len(cells)
