"""What a search gives back, and how a terminal or a notebook shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from s3dlm.search.select import Survivor
from s3dlm.search.step import FINISHED
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
    ancestry: tuple[tuple[int, ...], ...] = ()  # per step, each survivor's parent
    stopped: str = FINISHED  # why it ended: finished, satisfied or budget
    score: float | None = None  # the verifier's, of the chosen text; None if it was not scored
    confidence: float | None = None  # the model's, in the chosen text
    p_correct: float | None = None  # that the answer is right; None without a calibration
    prompt: str = ""  # as the model read it: the chat template with the task's prompt
    token_ids: tuple[int, ...] = ()  # of the text, without its end
    token_logprobs: tuple[float, ...] = ()  # of each when it was revealed, or as last predicted
    holes: tuple[str, ...] = ()  # what fills each hole of a text that was given with holes

    @property
    def agreement(self) -> float:
        """The share of survivors that have the chosen answer; 0 without an answer."""
        return 0.0 if self.answer is None else self.votes / len(self.survivors)

    @property
    def votes(self) -> int:
        """Survivors that have the chosen answer."""
        return sum(one.answer == self.answer for one in self.survivors)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return (
            f"Result(answer={self.answer!r}, {self.votes} of {len(self.survivors)} survivors, "
            f"{_chance(self.p_correct)}"
            f"NFE {self.nfe}, {self.seconds:.2f} s, method {self.settings.method!r},\n"
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
            f"{_chance(self.p_correct)}"
            f"NFE {self.nfe}, {self.seconds:.2f} s, method {escape(self.settings.method)}</p>"
            "<table><tr><th></th><th>score</th><th>confidence</th>"
            f"<th style='text-align:left'>survivor</th></tr>{rows}</table>{genealogy(self.ancestry)}"
        )


def _chance(p_correct: float | None) -> str:
    return "" if p_correct is None else f"p_correct {p_correct:.2f}, "


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


ACROSS, DOWN = 16, 12  # pixels per step and per particle


def genealogy(ancestry: Sequence[Sequence[int]]) -> str:
    """Who descends from whom, as SVG; steps in which everybody has one child are left out."""
    shown = [parents for parents in ancestry if list(parents) != list(range(len(parents)))]
    lines = "".join(
        f"<line x1='{ACROSS * step}' y1='{DOWN * parent}' "
        f"x2='{ACROSS * (step + 1)}' y2='{DOWN * child}' />"
        for step, parents in enumerate(shown)
        for child, parent in enumerate(parents)
        if parent >= 0  # a fresh particle descends from nobody
    )
    if not lines:
        return ""
    height = DOWN * max(max(max(parents), len(parents) - 1) for parents in shown)
    return (
        f"<svg width='{ACROSS * len(shown) + 8}' height='{height + 8}' viewBox='-4 -4 "
        f"{ACROSS * len(shown) + 8} {height + 8}' stroke='currentColor' role='img' "
        f"aria-label='Genealogy: {len(shown)} of {len(ancestry)} steps changed the population'>"
        f"{lines}</svg>"
    )
