"""No canvas is paid for twice: what the model made of it is kept for the whole search of a prompt.

Rounds, restarts, sweeps and block lengths meet many of the same canvases. What is kept of one is not the
draw but what draws are made from, so a canvas that comes back is expanded with fresh random numbers and
costs no forward pass; the random numbers, and with them the texts, are those of a search without a memo.
The values are the model's own and opaque here; their bytes are bounded. What was used least recently
goes first, except the first canvas of all, with which every restart begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s3dlm.search.particles import Ints

if TYPE_CHECKING:
    from s3dlm.settings import Settings


@dataclass(slots=True)
class Memo:
    """What the model made of canvases, within a number of bytes."""

    capacity: int = 0
    held: int = 0  # bytes
    kept: dict[bytes, Any] = field(default_factory=dict)  # the least recently used first
    first: bytes = b""

    @classmethod
    def of(cls, settings: Settings, searches: int) -> Memo:
        """The memo of so many searches; nothing is kept where no canvas can come back, since every step
        of one scheduled search reveals more than the step before."""
        again = settings.has_rounds or settings.row.ensemble != "none" or searches > 1
        again = again or settings.stop_when == "agreed"
        adaptive = settings.reveal_number > 0 and settings.size * settings.children > 1
        return cls(settings.memo << 20 if again or adaptive else 0)

    def recall(self, tokens: Ints) -> list[Any]:
        """What is kept of each canvas, which is then the latest used; None where nothing is."""
        keys = [row.tobytes() for row in tokens]
        for key in keys:
            if key in self.kept:
                self.kept[key] = self.kept.pop(key)
        return [self.kept.get(key) for key in keys]

    def keep(self, tokens: Ints, values: Sequence[Any]) -> None:
        """Keep what the model made of canvases, as far as it says (each value has its `nbytes`)."""
        for row, value in zip(tokens, values, strict=False):
            key = row.tobytes()
            if key not in self.kept and value.nbytes <= self.capacity:
                self.kept[key] = value
                self.held += value.nbytes
                self.first = self.first or key
        for key in [key for key in self.kept if key != self.first]:
            if self.held <= self.capacity:
                break
            self.held -= self.kept.pop(key).nbytes
