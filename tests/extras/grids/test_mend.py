"""`mend`: screening reads partial texts, cells are masked by doubt, and what brings no gain is given up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.errors import VerifierError
from s3dlm.extras.grids.mend import Mend
from s3dlm.job import Job
from s3dlm.search.remask import Text
from s3dlm.search.run import Run
from s3dlm.search.step import Step
from s3dlm.verifier import HOLE, Score
from tests.fakes import ADAPTIVE, MASK, QUESTION, Judge, fake_model, search, small

USUAL: dict[str, Any] = {
    "gen_length": 32, "steps": 16, "block_length": 32, "temperature": 1.5, "look_aheads": 1,
    "child_sampling": "independent",
}  # fmt: skip


class Digits(Judge):
    """Dislikes what is known and is a digit; remembers the partial texts that it was shown."""

    def __init__(self) -> None:
        super().__init__(doubts=lambda text: ((0, 1),))
        self.parts: list[str] = []

    def score_partial(self, prompt: str, text: str) -> Score:
        self.parts.append(text)
        return Score(1 / (1 + sum(letter.isdigit() for letter in text)))


def run(verifier: object, **options: Any) -> tuple[list[Step], s3dlm.Result]:
    settings = small("mend", USUAL, **{"lam": 8.0, **options})
    return search(settings, task=None, verifier=verifier)


def digits(steps: list[Step]) -> int:
    return int(np.isin(steps[-1].tokens[steps[-1].survivor], list(b"0123456789")).sum())


# --- screening


def test_children_are_chosen_by_what_is_known_of_them_and_only_they_are_forwarded() -> None:
    verifier = Digits()
    steps, result = run(verifier, particles=4, screen=16, rounds=0, lam=100.0)
    first = [step for step in steps if step.round == 0]
    assert all(len(step.tokens) == 4 and step.nfe <= 4 for step in first)
    assert result.nfe <= 1 + 16 * 4
    assert len(verifier.parts) == len(set(verifier.parts)) > 4 * 16
    assert max(map(len, verifier.parts)) <= 32
    assert digits(steps) < digits(run(Digits(), particles=4, rounds=0)[0]) / 2


def test_where_nothing_is_told_apart_children_still_differ() -> None:
    class Content(Digits):
        def score_partial(self, prompt: str, text: str) -> Score:
            return Score(1.0)

    steps, _ = run(Content(), particles=8, screen=16, temperature=4.0, rounds=0)
    assert len({row.tobytes() for row in steps[0].tokens}) == len(steps[0].tokens) == 8


@pytest.mark.parametrize("value", [Score(1.5), Score(float("nan")), None, ValueError("zebra")])
def test_a_bad_partial_score_ends_its_own_search_and_names_the_place(value: object) -> None:
    class Bad(Digits):
        def score_partial(self, prompt: str, text: str) -> Score:
            if isinstance(value, Exception):
                raise value
            return value  # type: ignore[return-value]

    settings, batcher = small("mend", USUAL, screen=8), s3dlm.engine.Batcher(fake_model())
    keys = [batcher.add(Job(QUESTION, settings=settings, verifier=v)) for v in (Digits(), Bad())]
    ends: dict[int, Any] = {}
    while batcher.running:
        ends |= {k: e for k, e in batcher.step() if not isinstance(e, Step)}
    assert isinstance(ends[keys[0]], s3dlm.Result)
    assert isinstance(ends[keys[1]], VerifierError)
    assert all(word in str(ends[keys[1]]) for word in ("'Bad'", "before step 2 of 16", HOLE))


# --- moves

ROUNDS = {"particles": 1, "rounds": 30}


def by_text() -> Judge:
    """Doubts the first character of a text, and the others a little."""
    doubts = ((0, 1), (0, 99, 0.25))
    return Judge(lambda text: sum(text.encode()) % 101 / 101, lambda text: doubts)


def over(step: Step) -> bool:
    """Whether a round begins on a canvas that is nearly empty."""
    return bool((step.tokens[0] == MASK).mean() > 0.7)


@pytest.mark.parametrize("accept", ["replace", "metropolis"])
def test_a_particle_without_gain_starts_over_after_so_many_rounds(accept: str) -> None:
    moves = {**ROUNDS, "accept": accept, "lam": 1000.0, "steps": 32}
    steps, result = run(by_text(), patience=3, **moves)
    rounds: dict[int, list[Step]] = {}
    for step in steps:
        rounds.setdefault(step.round, []).append(step)
    best, stale, restarts = -1.0, 0, 0
    for number, own in rounds.items():
        restarted = number > 0 and over(own[0])
        assert restarted == (stale == 3)
        score = float(own[-1].score[0])
        if restarted or score > best:
            best, stale, restarts = score, 0, restarts + restarted
        else:
            stale += 1
    assert restarts > 1
    assert result.stopped == "finished"


def test_each_cell_is_masked_as_likely_as_it_is_doubtful() -> None:
    rng, times = np.random.default_rng(0), 4_000
    doubt = np.array([0, 0.5, 0.9, 1.0, 0.05, 0, 0, 0, 0, 0])
    text = Text(np.zeros(10), np.arange(10) < 8, doubt)
    hidden = np.mean([Mend().rule.hide(text, 0.5, rng) for _ in range(times)], axis=0)
    assert (np.abs(hidden - doubt) < 5 * np.sqrt(0.25 / times)).all()
    assert (hidden[doubt == 1.0] == 1.0).all()
    assert (hidden[doubt == 0.0] == 0.0).all()


@pytest.mark.parametrize(("below", "starts_over"), [(0.9, False), (0.01, True)])
@pytest.mark.parametrize("memo", [0, 128])
def test_rounds_re_mask_only_where_the_first_look_ahead_is_unsure(
    memo: int, below: float, starts_over: bool
) -> None:
    steps, _ = run(
        by_text(), particles=1, remask_below=below, memo=memo, budget=90, accept="replace", patience=0,
        **ADAPTIVE,
    )  # fmt: skip
    later = [step for step in steps if step.round > 0 and step.index == 0]
    assert later
    assert all((step.parent < 0).all() == starts_over for step in later)
    assert steps[0].start_nfe == (1 if memo else 2)  # the first look is counted; a memo keeps it


def test_a_search_that_re_masks_reveals_by_how_sure_its_first_look_ahead_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thresholds: list[float] = []
    moves = Mend._moves

    def spy(mend: Mend, search: Run) -> Any:
        thresholds.append(search.process.decoding.reveal_threshold)
        return moves(mend, search)

    monkeypatch.setattr(Mend, "_moves", spy)
    for scale, below in ((1.0, 1.0), (0.5, 1.0), (100.0, 1.0), (1.0, 0.001)):
        options = {"particles": 1, "budget": 60, "threshold_scale": scale, "remask_below": below}
        run(by_text(), **options, **ADAPTIVE)
    sure = thresholds[0]
    assert 0 < sure < 1
    assert thresholds[1:] == pytest.approx([sure / 2, 1.0])  # where it is sure, it is not scaled
