"""From the outcome of a search to its result: texts, answers and the choice among them, once per prompt."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from s3dlm import answers, tasks
from s3dlm.errors import VerifierError
from s3dlm.jobs import GENERAL, Job, Running
from s3dlm.result import Result
from s3dlm.search.select import Survivor, temporal_log_weight
from s3dlm.search.step import SATISFIED, Outcome


def finish(one: Running, outcome: Outcome) -> Result:
    """Read the survivors and choose among them."""
    one.process = one.trials[outcome.trial]
    survivors = tuple(_survivors(one, outcome))
    # A text that satisfied the verifier is the answer, even if none can be read from it.
    everywhere = one.selection.from_all_seen and outcome.stopped != SATISFIED
    seen = _all_seen(one) if everywhere else []
    votes = _votes_of_steps(one) if one.selection.from_steps else []
    chosen = one.selection.choose(votes or [*survivors, *seen])
    p_correct = _p_correct(one, chosen, survivors)
    token_ids, token_logprobs = _tokens(one, outcome, survivors, chosen)
    seconds = time.perf_counter() - one.started
    known = {
        "forward": one.forward_seconds,
        "sampling": one.sampling_seconds,
        "verifier": one.scorer.seconds,
    }
    return Result(
        text=chosen.text,
        answer=chosen.answer,
        survivors=survivors,
        nfe=outcome.nfe,
        nfe_logical=outcome.nfe_logical,
        stopped=outcome.stopped,
        seconds=seconds,
        timings={**known, "search": seconds - sum(known.values())},
        question=one.job.question,
        task=one.job.task,
        settings=one.job.settings,
        ancestry=tuple(one.ancestry),
        score=chosen.score,
        confidence=chosen.confidence,
        p_correct=p_correct,
        prompt=one.process.reader.decode(one.process.prompt.tolist()),
        token_ids=token_ids,
        token_logprobs=token_logprobs,
        holes=_holes(one, token_ids, chosen),
    )


def _holes(one: Running, token_ids: tuple[int, ...], chosen: Survivor) -> tuple[str, ...]:
    """What fills the holes of the chosen text."""
    if one.job.infill is None:
        return ()
    looked = (tokens for canvases, _ in one.looked_ahead for tokens in canvases)
    alike = (tokens for tokens in looked if one.scorer.text(tokens) == chosen.text)
    tokens = np.asarray(token_ids, dtype=np.int64) if token_ids else next(alike)
    return next(
        p.reader.filled(tokens) for p in (one.process, *one.trials) if p.reader.keeps_given(tokens)
    )


def _tokens(
    one: Running, outcome: Outcome, survivors: tuple[Survivor, ...], chosen: Survivor
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The chosen text's tokens with their log-probabilities; none if it was only looked at."""
    found = next((row for row, other in enumerate(survivors) if other is chosen), None)
    if found is not None:
        canvas = outcome.particles.canvas
        tokens, logp = canvas.tokens[found], canvas.logp[found]
    elif chosen.text in one.scorer.looks:
        look = one.scorer.looks[chosen.text]
        tokens, logp = look.tokens[0], look.logp[0]
    else:  # by a vote over the steps of a method that never scores
        return (), ()
    length = one.process.reader.length(tokens)
    return tuple(tokens[:length].tolist()), tuple(logp[:length].tolist())


def _p_correct(one: Running, chosen: Survivor, survivors: tuple[Survivor, ...]) -> float | None:
    """The probability that the chosen answer is right; where there is no answer, none is."""
    if one.calibration is None:
        return None
    if chosen.answer is None:
        return 0.0
    score = chosen.score
    if score is None:  # by a method that never scores
        try:
            score = one.scorer.score_text(chosen.text, chosen.confidence)
        except VerifierError:  # the answer is worth more than its probability
            return None
    agreement = sum(other.answer == chosen.answer for other in survivors) / len(survivors)
    return one.calibration.p_correct(score, agreement, chosen.confidence)


def _survivors(one: Running, outcome: Outcome) -> Iterator[Survivor]:
    particles, job = outcome.particles, one.job
    nll = one.process.nll(particles.canvas)
    for index, tokens in enumerate(particles.canvas.tokens):
        text = one.scorer.text(tokens)
        score = float(particles.score[index])
        yield Survivor(
            text=text,
            answer=_answer(job, text),
            tokens=one.process.reader.length(tokens),
            score=None if np.isnan(score) else score,
            parts=outcome.scores.parts[index],
            log_weight=float(particles.log_weight[index]),
            nll=float(nll[index]),
            confidence=float(outcome.clean.confidence[index]),
        )


def _all_seen(one: Running) -> list[Survivor]:
    """Every complete text that was scored on the way, as if it had survived."""
    looks = one.scorer.looks
    return [
        _passing(one, text, confidence, score=score.total, parts=score.parts)
        for text, (score, confidence) in one.scorer.best().items()
        if text not in looks
        or any(trial.reader.keeps_given(looks[text].tokens[0]) for trial in one.trials)
    ]


def _votes_of_steps(one: Running) -> list[Survivor]:
    """The look-ahead texts of every step, as if they had survived with the weight of their step."""
    steps = len(one.looked_ahead)
    return [
        _passing(one, one.scorer.text(tokens), sure, log_weight=temporal_log_weight(step, steps))
        for step, (canvases, confidence) in enumerate(one.looked_ahead)
        for tokens, sure in zip(canvases, confidence.tolist(), strict=True)
        if one.process.reader.keeps_given(tokens)
    ]


def _passing(one: Running, text: str, confidence: float, **known: Any) -> Survivor:
    """A look-ahead text as a survivor; its confidence stands in for a path NLL."""
    usual: dict[str, Any] = {"tokens": 0, "score": None, "parts": {}, "log_weight": 0.0}
    nll = -math.log(max(confidence, 1e-9))
    answer = _answer(one.job, text)
    return Survivor(text=text, answer=answer, nll=nll, confidence=confidence, **{**usual, **known})


def _answer(job: Job, text: str) -> str | None:
    kind = tasks.get(job.task).answer if job.task is not None else GENERAL
    answer = answers.extract(kind, text, job.question)
    return None if answer is None else answers.normalise(kind, answer)
