"""What a search gives back, and how a terminal or a notebook shows it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from s3dlm.search.select import Survivor
from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True)
class Result:
    """The answer, and what it took to find it."""

    text: str
    answer: str | None
    survivors: tuple[Survivor, ...]
    nfe: int  # forward passes
    nfe_logical: int  # forward passes of Algorithm 1 without sharing: 1 + T·N·b
    seconds: float
    timings: dict[str, float]  # seconds: forward, sampling, verifier, search
    question: str
    task: str | None
    settings: Settings

    @property
    def votes(self) -> int:
        """Survivors that have the chosen answer."""
        return sum(one.answer == self.answer for one in self.survivors)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return (
            f"Result(answer={self.answer!r}, {self.votes} of {len(self.survivors)} survivors, "
            f"NFE {self.nfe}, {self.seconds:.2f} s, method {self.settings.method.name!r},\n"
            f"       text={text!r})"
        )

    def _repr_html_(self) -> str:
        answer = "no answer found" if self.answer is None else escape(self.answer)
        rows = "".join(
            f"<tr><td>{'✓' if one.answer == self.answer else ''}</td>"
            f"<td>{_number(one.score)}</td><td>{one.confidence:.2f}</td>"
            f"<td style='text-align:left'>{escape(one.text)}</td></tr>"
            for one in self.survivors
        )
        return (
            f"<p><b>{answer}</b> — {self.votes} of {len(self.survivors)} survivors, "
            f"NFE {self.nfe}, {self.seconds:.2f} s, method {escape(self.settings.method.name)}</p>"
            "<table><tr><th></th><th>score</th><th>confidence</th>"
            f"<th style='text-align:left'>survivor</th></tr>{rows}</table>"
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
