"""What a search gives back, how it is read off the outcome, and how a notebook shows it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from s3dlm.answers.kinds import extract, normalise
from s3dlm.errors import VerifierError
from s3dlm.search.score import verify
from s3dlm.search.select import Survivor, temporal_log_weight
from s3dlm.search.step import FINISHED, SATISFIED, Outcome
from s3dlm.settings import Settings

if TYPE_CHECKING:
    from s3dlm.diffusion.grammar import Grammar
    from s3dlm.job import Job, Running


_PLAIN = (
    "prompt", "text", "answer", "p_correct", "checkable", "score", "confidence", "nfe", "nfe_logical",
    "seconds", "stopped", "holes", "question", "task",
)  # fmt: skip


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
    stopped: str = FINISHED  # why it ended: finished, satisfied, budget or agreed
    score: float | None = None  # the verifier's, of the chosen text; None if it was not scored
    confidence: float | None = None  # the model's, in the chosen text
    p_correct: float | None = None  # that the answer is right; None without a calibration
    checkable: bool | None = None  # whether the verifier found a step of the text to check
    prompt: str = ""  # as the model read it: the chat template with the task's prompt
    token_ids: tuple[int, ...] = ()  # of the text, without its end
    token_logprobs: tuple[float, ...] = ()  # of each when it was revealed, or as last predicted
    holes: tuple[str, ...] = ()  # what fills each hole of a text that was given with holes
    grammar: Grammar | None = None  # that the text follows

    @property
    def parsed(self) -> Any:
        """What the text says by its grammar: an object of the pydantic class, or JSON's value."""
        return None if self.grammar is None else self.grammar.value(self.text)

    @property
    def agreement(self) -> float:
        """The share of survivors that have the chosen answer; 0 without an answer."""
        return 0.0 if self.answer is None else self.votes / len(self.survivors)

    @property
    def votes(self) -> int:
        """Survivors that have the chosen answer."""
        return sum(survivor.answer == self.answer for survivor in self.survivors)

    @property
    def _agreeing(self) -> str:
        count = len(self.survivors)
        return f"{self.votes} of {count} drafts agree, " if count > 1 else ""

    def to_dict(self) -> dict[str, Any]:
        """Everything but the genealogy and the tokens as plain data, floats with six digits."""
        return {
            **{name: as_json(getattr(self, name)) for name in (*_PLAIN, "timings")},
            "settings": self.settings.to_json(),
            "survivors": [
                {name: as_json(value) for name, value in dataclasses.asdict(survivor).items()}
                for survivor in self.survivors
            ],
        }

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        chance = "" if self.p_correct is None else f"p_correct {self.p_correct:.2f}, "
        chance += "no step to check, " if self.checkable is False else ""
        return (
            f"Result(answer={self.answer!r}, {self._agreeing}{chance}"
            f"{self.nfe} passes, {self.seconds:.2f} s, method {self.settings.method!r},\n"
            f"       text={text!r})"
        )

    @property
    def vote(self) -> dict[str | None, int]:
        """How many survivors have each answer, the most frequent first; None: no answer."""
        return dict(Counter(survivor.answer for survivor in self.survivors).most_common())

    def _repr_html_(self) -> str:
        answer = "no answer found" if self.answer is None else escape(self.answer)
        chance = "" if self.p_correct is None else f" · probably right: {self.p_correct:.0%}"
        chance += " · no step to check" if self.checkable is False else ""
        cell = "<td style='text-align:left'>"
        rows = "".join(
            f"<tr><td>{'–' if one.score is None else f'{one.score:.3f}'}</td><td>{one.confidence:.2f}</td>"
            f"{cell}<b>{escape(one.answer or 'no answer')}</b></td>{cell}{escape(one.text)}</td></tr>"
            for one in self.survivors
        )
        return (
            f"<p><b style='font-size:1.3em'>{answer}</b>{chance}<br>{escape(self.settings.method)}: "
            f"{self._agreeing}{self.nfe} forward passes, {self.seconds:.2f} s</p><table><tr><th>score</th>"
            f"<th>confidence</th><th>answer</th><th>text</th></tr>{rows}</table>"
        )


def as_json(value: Any) -> Any:
    """Arrays, tuples, floats and tables of numbers as JSON has them."""
    if isinstance(value, np.ndarray):
        return as_json(tuple(value.tolist()))
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: as_json(float(number)) for name, number in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def finish(running: Running, outcome: Outcome) -> Result:
    """Read the survivors of a search and choose among them."""
    job, selection, process = running.job, running.selection, running.process
    survivors = tuple(_survivors(running, outcome))
    candidates = list(survivors)
    # A text that satisfied the verifier is the answer, even if none can be read from it.
    if selection.from_all_seen and outcome.stopped != SATISFIED:
        candidates += _best_seen(running)
    if selection.from_steps:
        candidates = _votes_of_steps(running) or candidates
    chosen = selection.choose(candidates)
    p_correct = _p_correct(running, chosen, survivors)
    tokens, logp = _tokens(running, outcome, survivors, chosen)
    seconds = time.perf_counter() - running.started
    timings = {
        "forward": running.forward_seconds,
        "sampling": running.sampling_seconds,
        "verifier": running.verifier_seconds,
    }
    return Result(
        text=chosen.text,
        answer=chosen.answer,
        survivors=survivors,
        nfe=outcome.nfe,
        nfe_logical=outcome.nfe_logical,
        stopped=outcome.stopped,
        seconds=seconds,
        timings={**timings, "search": seconds - sum(timings.values())},
        question=job.question,
        task=job.task,
        settings=job.settings,
        ancestry=tuple(running.ancestry),
        score=chosen.score,
        confidence=chosen.confidence,
        p_correct=p_correct,
        checkable=chosen.checkable,
        prompt=process.reader.decode(process.prompt.tolist()),
        token_ids=tokens,
        token_logprobs=logp,
        holes=() if job.infill is None else _holes(running, tokens, chosen),
        grammar=job.grammar,
    )


def _holes(running: Running, ids: tuple[int, ...], chosen: Survivor) -> tuple[str, ...]:
    """What fills the holes of the chosen text."""
    tokens = np.asarray(ids, dtype=np.int64)
    if not ids:
        looked = (tokens for canvases, _ in running.looked_ahead for tokens in canvases)
        tokens = next(tokens for tokens in looked if running.scorer.text(tokens) == chosen.text)
    return running.process.reader.filled(tokens)


def _tokens(
    running: Running, outcome: Outcome, survivors: tuple[Survivor, ...], chosen: Survivor
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The chosen text's tokens with their log-probabilities; none if it was only looked at."""
    row = next((row for row, survivor in enumerate(survivors) if survivor is chosen), None)
    if row is not None:
        tokens, logp = outcome.canvas.tokens[row], outcome.canvas.logp[row]
    elif chosen.text in running.scorer.looks:
        tokens, logp = running.scorer.looks[chosen.text]
    else:  # by a vote over the steps of a method that never scores
        return (), ()
    length = running.process.reader.length(tokens)
    return tuple(tokens[:length].tolist()), tuple(logp[:length].tolist())


def _p_correct(running: Running, chosen: Survivor, survivors: tuple[Survivor, ...]) -> float | None:
    """The probability that the chosen answer is right; where there is no answer, none is."""
    if running.calibration is None:
        return None
    if chosen.answer is None:
        return 0.0
    score = chosen.score
    if score is None:  # by a method that never scores
        started = time.perf_counter()
        request = running.scorer.request([(chosen.text, chosen.confidence)], "the end")
        (reply,) = verify([request])
        running.verifier_seconds += time.perf_counter() - started
        if isinstance(reply, VerifierError):  # the answer is worth more than its probability
            return None
        score = reply[0].total
    agreement = sum(other.answer == chosen.answer for other in survivors) / len(survivors)
    return running.calibration.p_correct(score, agreement, chosen.confidence)


def _survivors(running: Running, outcome: Outcome) -> Iterator[Survivor]:
    reader = running.process.reader
    nll = reader.nll(outcome.canvas)
    for row, tokens in enumerate(outcome.canvas.tokens):
        text, score = running.scorer.text(tokens), float(outcome.scores.total[row])
        yield Survivor(
            text=text,
            answer=answer_of(running.job, text),
            tokens=reader.length(tokens),
            score=None if np.isnan(score) else score,
            parts=outcome.scores.parts[row],
            log_weight=float(outcome.log_weight[row]),
            nll=float(nll[row]),
            logp=float(outcome.canvas.logp[row].sum()),
            confidence=float(outcome.clean.confidence[row]),
        )


def _best_seen(running: Running) -> list[Survivor]:
    """Of every complete text that was scored on the way the best that has an answer, as if it had survived;
    the best of all if none has. Texts behind it are not read."""
    looks, reader = running.scorer.looks, running.process.reader
    seen = [(text, *one) for text, one in running.scorer.best().items()]
    seen.sort(key=lambda one: (one[1].total, one[2]), reverse=True)
    complete = (
        _passing(running.job, text, confidence, score=score.total, parts=score.parts)
        for text, score, confidence in seen
        if text not in looks or reader.keeps_given(looks[text][0])
    )
    first = next(complete, None)
    if first is None or first.answer is not None:
        return [] if first is None else [first]
    return [next((one for one in complete if one.answer is not None), first)]


def _votes_of_steps(running: Running) -> list[Survivor]:
    """The look-ahead texts of every step, as if they had survived with the weight of their step."""
    steps, text = len(running.looked_ahead), running.scorer.text
    return [
        _passing(running.job, text(tokens), sure, log_weight=temporal_log_weight(step, steps))
        for step, (canvases, confidence) in enumerate(running.looked_ahead)
        for tokens, sure in zip(canvases, confidence.tolist(), strict=True)
        if running.process.reader.keeps_given(tokens)
    ]


def _passing(job: Job, text: str, confidence: float, **values: Any) -> Survivor:
    """A look-ahead text as a survivor; its confidence stands in for a path NLL."""
    defaults: dict[str, Any] = {"tokens": 0, "score": None, "parts": {}, "log_weight": 0.0}
    defaults |= {"nll": -math.log(max(confidence, 1e-9)), "confidence": confidence}
    return Survivor(text, answer_of(job, text), **{**defaults, **values})


def answer_of(job: Job, text: str) -> str | None:
    """The answer that a text gives, so that equal answers are equal strings."""
    answer = extract(job.kind, text, job.question)
    return None if answer is None else normalise(job.kind, answer)
