"""A method from its first text to its last: one search, or rounds of them until something says stop.

Everything here wraps a search and speaks its language (requests out, replies in, steps, an outcome),
so whoever drives a search drives these. A method's row names its ensemble: one search, or another way
to make a population (`methods.ENSEMBLES`). With a budget the first round is one greedy answer, where
there is a verifier to judge it. Each later round is the method's own search, begun on empty canvases or
on finished texts of which a part is masked again, until the verifier is satisfied, the budget is spent or
the given number of rounds is made; the best of what was found until then is there at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from s3dlm.inputs import load_built_in
from s3dlm.search.loop import predict, search
from s3dlm.search.methods import ENSEMBLES
from s3dlm.search.particles import Canvas, CleanText, Ints, Predict, Process, Reply, Survivors
from s3dlm.search.remask import ACCEPT_RULES, BY_DOUBT, BY_SCORE, Moved, Standing, positions
from s3dlm.search.score import Scores
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Search, Searching, Setup, Step
from s3dlm.search.step import relay as relay
from s3dlm.search.step import unrelated as unrelated

LEAST = 2  # forward passes below which no round is begun
IDLE = 20  # rounds in a row that meet only canvases they know: there is nothing new to be found


def bounded(running: Search, setup: Setup, limit: int | None) -> Search:
    """The search until the verifier is satisfied with a look-ahead, which is then the answer, or until
    the next forward pass is beyond the limit; then the look-aheads of all particles are the answers."""
    process, scorer, settings = setup.process, setup.scorer, setup.settings
    spent, told, steps, refused, first = 0, 0, 0, False, True
    # Where the model is the judge, each prediction is paid for together with the texts it leads to.
    judging = settings.size * settings.children * settings.look_aheads * scorer.verifier.passes
    judging = 0 if settings.row.scored == "never" else judging
    chosen: Step | None = None  # with the one text that satisfies
    reply: Reply = None
    while True:
        try:
            event = running.send(reply)
        except StopIteration as end:
            outcome: Outcome = end.value
            break
        if isinstance(event, Predict):
            spent += event.forwarded * process.passes
            refused, first = limit is not None and not first and spent + judging > limit, False
            reply = None if refused else (yield event)
        elif isinstance(event, Step):
            steps, told = event.index + 1, told + event.nfe + event.start_nfe
            satisfied = scorer.satisfied(event.score, event.spans)
            if satisfied.any():
                best = int(np.where(satisfied, event.score, -1).argmax())
                tokens, logp = event.tokens.copy(), event.logp.copy()
                tokens[best], logp[best] = event.clean[best], event.clean_logp[best]
                event = replace(event, tokens=tokens, logp=logp, survivor=np.array([best]))
                event = chosen = replace(event, unique_ancestors=1, resampled=False)
            reply = (yield event) or chosen is not None
        else:
            spent += len(event.forwards)
            reply = yield event
    if chosen is not None:
        index = chosen.survivor
        return replace(
            outcome,
            canvas=Canvas(chosen.tokens, chosen.logp).take(index),
            log_weight=np.zeros(1),
            clean=CleanText(chosen.clean, chosen.clean_logp, chosen.confidence).take(index),
            scores=Scores(chosen.score, chosen.parts, chosen.spans).take(index),
            stopped=SATISFIED,
        )
    if not refused:
        return outcome
    clean, weight, scores, judged = outcome.clean, outcome.log_weight, outcome.scores, scorer.nfe
    if settings.row.scored != "never":
        scores = yield from scorer.score(clean, "the end of the budget")
    judged = scorer.nfe - judged
    text, everyone = Canvas(clean.tokens, clean.logp), np.arange(len(outcome))
    survivors = Survivors(everyone, weight, resampled=False)
    untold = outcome.nfe - told  # what the passes since the last step were for was refused
    place, passes = (steps, process.steps), (judged + untold, 0) if steps else (judged, untold)
    yield Step.of(place, text, everyone, clean, scores, weight, survivors, *passes)
    nfe, logical = outcome.nfe + judged, outcome.nfe_logical + judged
    return replace(outcome, canvas=text, scores=scores, nfe=nfe, nfe_logical=logical, stopped=SPENT)


def one_search(setup: Setup, limit: int | None = None) -> Search:
    return bounded(search(setup), setup, limit)


def ensemble(setup: Setup) -> Callable[[Setup, int | None], Search]:
    """How the method of this row makes its population: by one search, or in a way of its own."""
    name = setup.settings.row.ensemble
    make: Callable[[Setup, int | None], Search] = one_search
    return make if name == "none" else load_built_in(name, ENSEMBLES[name])


def run_rounds(setup: Setup) -> Search:
    """The whole of a method."""
    setup, seen = yield from _as_open(setup)

    def counted(step: Step, first: bool) -> Step:
        return replace(step, start_nfe=step.start_nfe + seen) if first else step

    return (yield from relay(_rounds(setup, seen), counted))


def _as_open(setup: Setup) -> Searching[tuple[Setup, int]]:
    """The search as its prompt wants it, and the passes that it took to see that. Where the first
    look-ahead is unsure, many texts may be right, and a careless one is soon mended. Where it is sure,
    little is open, and what is wrong is seldom where it shows: later rounds begin afresh."""
    settings, process = setup.settings, setup.process
    asked = settings.remask_below < 1 or settings.careless
    if not asked or not settings.has_rounds or settings.remask == "all":
        return setup, 0
    start = process.start()
    prediction = yield from predict(setup, start, 0)
    assert prediction is not None, "the first prediction of a search cannot be refused"
    confidence = float(next(process.look_aheads(start, prediction)).confidence[0])
    if confidence >= settings.remask_below:
        return replace(setup, settings=settings.adapted(remask="all")), prediction.nfe
    if settings.careless:
        process = process.with_threshold(min(1.0, settings.careless * confidence))
    return replace(setup, process=process), prediction.nfe


def _rounds(setup: Setup, seen: int) -> Search:
    """The first search and those after it, if so many passes are spent already."""
    settings, scorer = setup.settings, setup.scorer
    make, budget = ensemble(setup), settings.budget
    if budget is None and not settings.rounds:
        return (yield from make(setup, None))
    if budget is None or settings.row.scored == "never" or not settings.row.needs_chance:
        population = yield from make(setup, None if budget is None else budget - seen)
    else:
        scored = "every step" if scorer.satisfied_at is not None else "at the end"
        greedy = settings.adapted(
            population="one", branches=False, weight="none", resampling=None, ess_threshold=None,
            child_sampling="independent", scored=scored, screen=0,
        )  # fmt: skip
        first = replace(setup, process=setup.process.greedy(), settings=greedy)
        population = yield from one_search(first, budget - seen)
    logical = population.nfe_logical + seen
    population = replace(population, nfe=population.nfe + seen, nfe_logical=logical)
    price = math.ceil(population.nfe / len(population))
    standing = Standing.begin(len(population))
    most, idle = (settings.rounds or budget or 0) if settings.has_rounds else 0, 0
    for number in range(1, most + 1):
        population = yield from _judged(population, setup)
        left = math.inf if budget is None else budget - population.nfe
        # A fixed number of rounds, meant to mend what looks wrong, may have nothing more to do.
        mends = budget is None and settings.remask in BY_DOUBT
        mended = mends and not any(len(spans) for spans in population.scores.spans)
        if population.stopped != FINISHED or left < LEAST or mended or idle == IDLE:
            break
        # As many trajectories as are likely to fit into what is left.
        sized, trajectories = settings, max(1, int(min(left, 1e9)) // price)
        if settings.size * settings.children > trajectories:
            size = max(1, trajectories // settings.children)
            sized = settings.adapted(population="particles", particles=size)
        again = _round(replace(setup, settings=sized), population, left, standing, number)
        population, standing = yield from again
        idle = idle + 1 if budget is not None and budget - population.nfe == left else 0
    if scorer.satisfied(population.scores.total, population.scores.spans).any():
        return replace(population, stopped=SATISFIED)
    spent = budget is not None and budget - population.nfe < LEAST  # else it made all its rounds
    if most and spent and population.stopped == FINISHED:
        return replace(population, stopped=SPENT)
    return population


def _judged(population: Outcome, setup: Setup) -> Search:
    """The population with the scores that a move needs, and whether they are enough."""
    settings, scorer, scores = setup.settings, setup.scorer, population.scores
    judged = scorer.nfe
    by_score = settings.remask != "all" and (settings.accept in BY_SCORE or settings.patience > 0)
    if (settings.remask in BY_DOUBT or by_score) and np.isnan(scores.total).any():
        scores = yield from scorer.score(population.clean, "a move")
    satisfied = scorer.satisfied(scores.total, scores.spans).any()
    stopped, judged = SATISFIED if satisfied else population.stopped, scorer.nfe - judged
    nfe, logical = population.nfe + judged, population.nfe_logical + judged
    return replace(population, scores=scores, stopped=stopped, nfe=nfe, nfe_logical=logical)


def _round(
    setup: Setup, population: Outcome, left: float, standing: Standing, number: int
) -> Searching[tuple[Outcome, Standing]]:
    """The population after one more search, and what is remembered of each text."""
    settings, rng, before = setup.settings, setup.rng, len(population)
    limit, size = None if math.isinf(left) else int(left), settings.size
    if settings.remask == "all":
        running = ensemble(setup)(setup, limit)
        again, _ = yield from _from_seats(running, np.full(size, -1), number)
        index, after = np.arange(before + len(again)), Standing.begin(len(again))
    else:
        origin = np.arange(size) % before
        canvas, seats_before = population.canvas.take(origin), standing.seat[origin]
        spans = [population.scores.spans[row] for row in origin.tolist()]
        where = positions(setup.process, canvas, spans, settings, rng)
        given_up = (standing.stale[origin] >= settings.patience) & (settings.patience > 0)
        empty = given_up.copy()
        if settings.restart_fraction:
            empty |= rng.random(size) < settings.restart_fraction
        where[empty], seats_before[empty] = True, -1
        process, start = setup.process.remask(canvas, where)
        same_size = settings.adapted(population="particles", particles=size)
        resumed = replace(setup, process=process, settings=same_size)
        running = bounded(search(resumed, start=start), resumed, limit)
        again, start_of = yield from _from_seats(running, seats_before, number)
        after = Standing.begin(len(again))
        if again.stopped != SATISFIED:
            judged = yield from _judged(again, setup)
            again = replace(again, nfe=judged.nfe, nfe_logical=judged.nfe_logical)
            score_before, score_after = population.scores.total, judged.scores.total
            tokens = np.concatenate([population.canvas.tokens, again.canvas.tokens])
            origin, fresh = origin[start_of], empty[start_of]
            moved = Moved(score_before, score_after, origin, tokens, given_up[start_of])
            standing = replace(standing, best=np.fmax(standing.best, score_before))
            after = standing.take(origin).after(score_after, fresh)
            index = ACCEPT_RULES[settings.accept](moved, size, settings.lam, rng)
    if again.stopped == SATISFIED:  # its one text is the answer
        index = before + np.arange(len(again))
    both = Outcome.join([population, again])
    unmoved = replace(standing, seat=np.full(before, -1), stale=standing.stale + 1)
    standing = Standing.join([unmoved, after]).take(index)
    return replace(both.take(index), stopped=again.stopped), standing


def _from_seats(running: Search, seat: Ints, number: int) -> Searching[tuple[Outcome, Ints]]:
    """The search of this round, whose first step names its parents by their places in the step before,
    and from which of its starts each of its last particles descends."""
    start_of = np.arange(seat.size)

    def named(step: Step, first: bool) -> Step:
        nonlocal start_of
        start_of = start_of[step.parent[step.survivor]]
        return replace(step, parent=seat[step.parent] if first else step.parent, round=number)

    return (yield from relay(running, named)), start_of


def run_trials(processes: Sequence[Process], setup: Setup) -> Search:
    """The method on each process, one after the other, each with its share of the budget, until the
    verifier is satisfied; the outcome of the best, with the cost of all. The best has the highest
    score; where nothing is scored, and among equal scores, the most likely text: the lowest mean
    −log p per token that was filled in."""
    if len(processes) == 1:
        return (yield from run_rounds(replace(setup, process=processes[0])))
    outcomes: list[Outcome] = []
    budget, nfe, rounds = setup.settings.budget, 0, 0
    for trial, process in enumerate(processes):
        settings, last = setup.settings, rounds
        if budget is not None:
            settings = settings.adapted(budget=(budget - nfe) // (len(processes) - trial))

        def renumber(step: Step, first: bool, before: int = rounds, trial: int = trial) -> Step:
            nonlocal last
            last = step.round + before
            step = replace(step, round=last)
            return unrelated(step, first) if trial else step

        running = run_rounds(replace(setup, process=process, settings=settings))
        outcome = yield from relay(running, renumber)
        outcomes.append(replace(outcome, trial=trial))
        nfe, rounds = nfe + outcome.nfe, last + 1
        if outcome.stopped == SATISFIED:
            break

    def rank(outcome: Outcome) -> tuple[float, float]:
        score, nll = outcome.scores.total, processes[outcome.trial].nll(outcome.canvas)
        if np.isnan(score).all():
            return 0.0, -float(nll.min())
        return float(np.nanmax(score)), -float(nll[score == np.nanmax(score)].min())

    best = max(outcomes, key=rank)
    return replace(best, nfe=nfe, nfe_logical=sum(outcome.nfe_logical for outcome in outcomes))
