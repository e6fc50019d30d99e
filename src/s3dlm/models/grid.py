"""What a network on Sudoku grids has in place of rotary positions.

A row of tokens is a grid of n²×n² cells, row by row. Every cell's embedding says in which row, column
and box it stands, and each head of each layer has a learned bias for two cells that share a row, a
column or a box.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm.errors import ModelError


class Grid(nn.Module):
    """Embeddings and attention biases of the cells of an n²×n² grid."""

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
