"""Streaming of text that cannot change any more while a search is still running.

A diffusion model does not write from left to right, and a search may still drop any particle. But a
revealed token never changes, and the answer descends from the survivors of every step: the tokens
that *all* survivors have revealed and agree on, from the first position without a gap, are certain
to begin the answer. Only they are streamed, and nothing is taken back. A method whose answer may be
an earlier text, or that starts over, sends everything at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from s3dlm.models.base import Model
from s3dlm.search.step import Step
from s3dlm.server.declared import keeps_revealed_tokens
from s3dlm.settings import Settings

BROKEN = "\ufffd"  # half of a character, whose other half is in a later token


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop sequence, and whether there was one."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


@dataclass(slots=True)
class CertainText:
    """What has been sent of one choice, and what may follow."""

    model: Model
    stops: tuple[str, ...]
    live: bool
    sent: str = ""
    stopped: bool = False
    _held: int = field(init=False)

    def __post_init__(self) -> None:
        # The end of a certain text may be the beginning of a stop sequence.
        self._held = max((len(stop) - 1 for stop in self.stops), default=0)

    @classmethod
    def of(
        cls, model: Model, settings: Settings, stops: tuple[str, ...], *, final: bool = True
    ) -> CertainText:
        """`final` says that the search's choice is the one that is sent."""
        return cls(model, stops, live=final and keeps_revealed_tokens(settings))

    def after(self, step: Step) -> str:
        """What became certain at this step."""
        if not self.live or self.stopped:
            return ""
        tokens = agreed(step, self.model.denoiser.mask_id)
        ends = [i for i, token in enumerate(tokens) if token in self.model.end_ids]
        # The last token may still change how its neighbour is spelt.
        known = tokens[: ends[0]] if ends else tokens[:-1]
        text, self.stopped = cut(self.model.tokenizer.decode(known).rstrip(BROKEN), self.stops)
        if not self.stopped and self._held:
            text = text[: max(0, len(text) - self._held)]
        return self._new(text)

    def rest(self, text: str) -> str:
        """What is left of the final text."""
        whole, self.stopped = cut(text, self.stops)
        return self._new(whole)

    def _new(self, text: str) -> str:
        if not text.startswith(self.sent):
            return ""
        new = text[len(self.sent) :]
        self.sent = text
        return new


def agreed(step: Step, mask_id: int) -> list[int]:
    """The tokens that all survivors share, from the first position to the first difference."""
    tokens = step.tokens[step.survivor]
    same = (tokens == tokens[0]).all(axis=0) & (tokens[0] != mask_id)
    length = same.size if same.all() else int(np.argmin(same))
    shared: list[int] = tokens[0, :length].tolist()
    return shared
