"""The seam between any diffusion language model and the rest of the package.

A denoiser is split in two so that no logits are computed that are not needed: `encode` runs the
body on whole rows, `head` turns the features of chosen positions into logits. A model that only
gives logits is a denoiser whose features *are* its logits and whose head is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from s3dlm.models.calibrations import Calibrations
from s3dlm.models.defaults import Defaults

if TYPE_CHECKING:  # listing models must not wait for torch
    from torch import Tensor


@runtime_checkable
class Denoiser(Protocol):
    """Tokens in, logits out, and the id that stands for "not yet known".

    A denoiser may also have: `device` (else CPU), `tokens_at_once` (the largest batch), `causal_block`
    (blocks of this size, counted from the start of the row, do not see later ones), `shift` (a position
    is predicted by the features of the one before it) and `text_vocabulary` (ids from here on are
    never predicted).
    """

    mask_id: int
    vocabulary: int  # logits per position
    context: int  # the most tokens a row may have

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        """Features of every position: (rows, length) int64 → (rows, length, width).

        `keys` (rows, length) is False where a row is padding, which no position may attend to;
        rows are padded on the right, so positions count from zero in every row. None: no padding.
        """
        ...

    def head(self, features: Tensor) -> Tensor:
        """Logits of chosen positions: (n, width) → (n, vocabulary)."""
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, and the model's own way of writing a conversation."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens stay visible as their own text."""
        ...

    def chat(self, user: str, prefill: str = "") -> list[int]:
        """Ids of one user turn and the opened assistant turn, `prefill` being its first words."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str  # system, user or assistant
    text: str


@runtime_checkable
class Conversational(Protocol):
    """A tokenizer that can also write whole conversations."""

    def converse(self, turns: Sequence[Turn], prefill: str = "") -> list[int]:
        """As `chat`, with everything said before the last turn, which is the user's."""
        ...


def quoted(turns: Sequence[Turn]) -> str:
    """A conversation as one user turn, for models without conversations: instructions first, then
    the question, after a transcript if there were other turns before it."""
    instructions = [one.text for one in turns if one.role == "system"]
    said = [one for one in turns if one.role != "system"]
    if len(said) == 1:
        return "\n\n".join([*instructions, said[0].text])
    return "\n\n".join([*instructions, *(f"{one.role.capitalize()}: {one.text}" for one in said)])


@dataclass(frozen=True, slots=True)
class Model:
    """A denoiser with its tokenizer: what `load` returns and `generate` takes."""

    name: str
    denoiser: Denoiser
    tokenizer: Tokenizer
    end_ids: frozenset[int]  # tokens that end an answer: end of text, end of turn
    defaults: Defaults = field(default_factory=Defaults)  # what it recommends
    revision: str | None = None  # the hub's commit, if it came from there
    calibrations: Calibrations = field(default_factory=Calibrations)  # for `Result.p_correct`

    def __repr__(self) -> str:
        weights: Any = getattr(self.denoiser, "parameters", None)
        parameters = f", {sum(one.numel() for one in weights()):,} parameters" if weights else ""
        return (
            f"Model({self.name!r}, {type(self.denoiser).__name__}{parameters}, "
            f"vocabulary {self.denoiser.vocabulary:,}, context {self.denoiser.context:,})"
        )

    def _repr_html_(self) -> str:
        tasks = ", ".join(self.defaults.tasks)
        return f"<p><b>{escape(self.name)}</b> {escape(repr(self))}<br>tasks: {escape(tasks)}</p>"
