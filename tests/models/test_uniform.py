"""Uniform noise on `noisy9`: what is given stays, company changes nothing, and re-noising is re-masking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rich.console import Console

import s3dlm
from s3dlm.answers.grids import is_solution
from s3dlm.board import AGAIN, Board, pieces_of
from s3dlm.engine import Job
from s3dlm.errors import SettingsError
from s3dlm.extras.uniform import HIDDEN, within
from s3dlm.job import prepare
from s3dlm.search.particles import Canvas
from s3dlm.settings import Settings
from tests.fakes import events_of
from tests.server.live import serving, text

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
METHODS = ("baseline", "best_of_k", "tilting", "top_n", "s3", "twisted", "restarts", "revise")


@pytest.fixture(scope="module")
def model() -> s3dlm.Model:
    return s3dlm.load("noisy9", device="cpu")


def test_the_surest_are_accepted_while_the_others_before_them_stay_within_the_bound() -> None:
    entropy = np.array([0.5, 0.05, 0.06, 0.0])
    assert within(entropy, 0.1).tolist() == [False, True, True, True]
    assert within(entropy, 0.2).all()
    assert within(entropy + 9, 0.1).tolist() == [False, False, False, True]


@pytest.mark.parametrize("method", METHODS)
def test_clues_stay_and_company_changes_nothing(model: s3dlm.Model, method: str) -> None:
    usual = {"particles": 2, "branching": 2, "budget": 30, "look_aheads": 2, "steps": 8}
    settings = Settings.for_model(model, method, "sudoku9")
    settings = Settings.over(method, [settings.to_json(), usual], {})
    *steps, alone = events_of(model, PUZZLE, settings=settings)
    given = np.array([mark != "." for mark in PUZZLE])
    for step in steps:
        for texts in (step.tokens, step.clean):
            assert (texts[:, given] == steps[0].tokens[0, given]).all()
        assert (step.tokens[:, ~given] < 9).all()
    together = s3dlm.generate_batch(model, [PUZZLE] * 3, settings=settings)
    assert {(one.text, one.nfe) for one in together} == {(alone.text, alone.nfe)}
    assert alone.nfe <= 30


def test_it_solves_a_puzzle(model: s3dlm.Model) -> None:
    assert is_solution(s3dlm.generate(model, PUZZLE, method="greedy").text, PUZZLE)


def test_the_board_marks_what_noise_takes_back(model: s3dlm.Model) -> None:
    drawn, last, taken = Board(pieces_of(model), frozenset(), "", 9, 80), None, 0
    settings = Settings.for_model(model, "baseline", "sudoku9")
    for event in events_of(model, PUZZLE, settings=settings):
        (picture,) = drawn.pictures(event)
        if isinstance(event, s3dlm.Step):
            (now,), console = event.tokens, Console(width=80)
            with console.capture() as captured:
                console.print(picture)
            back = 0 if last is None else int(((last != HIDDEN) & (now == HIDDEN)).sum())
            assert captured.get().count(AGAIN) == back + 1  # one in the legend
            last, taken = now, taken + back
    assert taken > 0


def test_doubted_cells_are_drawn_anew_and_the_rest_may_change(model: s3dlm.Model) -> None:
    run = prepare(model, Job(PUZZLE, settings=Settings.for_model(model, "revise", "sudoku9")))
    process, rng = run.process, np.random.default_rng(0)
    start = process.start(1, rng)
    full = Canvas(np.where(start.tokens == HIDDEN, 0, start.tokens), np.full((1, 81), -1.0))
    where = np.zeros((1, 81), np.bool_)
    where[0, :5] = True
    again, canvas = process.remask(full, where, rng)
    assert (canvas.tokens[0] == HIDDEN).nonzero()[0].tolist() == [2, 3]  # the others are clues
    (state,) = canvas.state
    assert state.free.sum() == PUZZLE.count(".")
    assert again.progress(canvas, 0).done == again.steps - 2
    assert process.start(1, rng).keys() != process.start(1, rng).keys()  # other noise


def test_what_is_for_masks_is_refused(model: s3dlm.Model) -> None:
    with pytest.raises(SettingsError, match="denoises uniform noise"):
        s3dlm.generate(model, PUZZLE, method="baseline", guidance=1.0)
    with pytest.raises(SettingsError, match="reads an answer at a mask"):
        s3dlm.generate(model, PUZZLE, method="s3", verifier="self")
    with pytest.raises(SettingsError, match="for models of masked diffusion"):
        s3dlm.generate(model, PUZZLE, method="prism")


def test_64_concurrent_requests_answer_as_each_alone(model: s3dlm.Model) -> None:
    own = {"method": "baseline", "task": "sudoku9", "steps": 4}
    with serving(model, defaults={}) as live, ThreadPoolExecutor(64) as pool:
        asked = [pool.submit(live.ask, PUZZLE, model="noisy9", seed=n, **own) for n in range(64)]
        texts = [text(answer.result()) for answer in asked]
    alone = [s3dlm.generate(model, PUZZLE, seed=seed, **own).text for seed in range(64)]
    assert texts == alone
    assert len(set(texts)) > 1
