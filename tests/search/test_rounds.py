"""A budget is never exceeded, a satisfied verifier ends the search, and moves mask what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.errors import SettingsError, VerifierError
from s3dlm.job import Job, prepare
from s3dlm.search.methods import METHODS
from s3dlm.search.particles import Canvas
from s3dlm.search.remask import REMASKINGS, Remasking, Text, positions
from s3dlm.search.rounds import MOST_IDLE, affordable
from s3dlm.settings import Settings, has, schema
from s3dlm.verifier.base import Spans
from tests.fakes import ADAPTIVE, END, MASK, QUESTION, Judge, fake_model, search, small


def wants(words: str) -> Judge:
    """Satisfied by a text that has these words; doubts the first equals sign of others."""

    def doubts(text: str) -> Spans:
        at = text.find("=")
        return () if words in text or at < 0 else ((at, at + 2),)

    return Judge(lambda text: 1.0 if words in text else 0.3, doubts, satisfied_at=1.0)


# --- budget and satisfaction


@pytest.mark.parametrize("decoding", [{}, ADAPTIVE], ids=["schedule", "adaptive"])
@pytest.mark.parametrize("budget", [2, 7, 60])
@pytest.mark.parametrize("method", METHODS)
def test_a_budget_is_a_hard_limit_and_there_is_always_an_answer(
    method: str, budget: int, decoding: dict[str, Any]
) -> None:
    decoding = decoding if has(METHODS.find(method), "reveal") else {}
    settings = small(method, budget=budget, **decoding)
    steps, result = search(settings)
    assert result.nfe <= settings.most_nfe <= budget
    assert result.text
    assert result.stopped in ("finished", "satisfied", "budget", "agreed")
    assert not (steps[-1].tokens[steps[-1].survivor] == MASK).any()
    before = 0
    for step in steps:
        begins = step.index == 0 and step.round == 0
        assert step.parent.min() >= -1
        assert begins or step.parent.max() < before
        before = step.survivor.size


@pytest.mark.parametrize(
    ("method", "left", "size"),
    [("s3", 100, 4), ("s3", 80, 4), ("s3", 79, 3), ("s3", 10, 1), ("s3", 3, 1),
     ("best_of_k", 80, 8), ("best_of_k", 35, 3), ("best_of_k", 3, 1), ("best_of_k", np.inf, 8)],
)  # fmt: skip
def test_a_round_has_as_many_trajectories_as_fit(method: str, left: float, size: int) -> None:
    searched = Settings(method).search  # eight rows a step, ten passes a trajectory
    assert affordable(searched, left, price=10).size == size


def test_the_first_greedy_answer_is_verified_on_the_way_only_if_a_text_may_be_enough() -> None:
    never, may = Judge(0.3), Judge(0.3, satisfied_at=1.0)
    greedy = search(small("baseline", temperature=0.0))[1].nfe
    for judge in (never, may):  # the budget has no room for a round after it
        assert search(small("s3", budget=greedy + 1), verifier=judge)[1].nfe == greedy
    assert len(never.seen) == 1 < len(may.seen)


@pytest.mark.parametrize("budget", [3, 5, 8])
@pytest.mark.parametrize("method", ["hex", "particle_gibbs", "s3"])
def test_a_budget_holds_with_guidance_too(method: str, budget: int) -> None:
    assert search(small(method, budget=budget, guidance=1.0))[1].nfe <= budget


@pytest.mark.parametrize("method", ["s3", "revise", "verified_best_of_k", "fk_max", "prism"])
def test_a_satisfied_verifier_ends_the_search_at_once(method: str) -> None:
    _, result = search(small(method, budget=150), verifier=wants("24"))
    assert result.stopped == "satisfied"
    assert "24" in result.text
    assert result.nfe < 150
    _, never = search(small(method, budget=150, stop_when="never"), verifier=wants("24"))
    # A given number of rounds may end before the budget does.
    assert never.stopped == ("finished" if method == "revise" else "budget")
    assert never.nfe > result.nfe


@pytest.mark.parametrize(
    "verifier",
    [Judge(wants("24").total, lambda text: ((0, 1),), 1.0), Judge(wants("24").total)],
    ids=["its text is doubted", "it names no threshold"],
)
def test_a_verifier_that_is_never_satisfied_ends_no_search(verifier: Judge) -> None:
    _, result = search(small("revise", budget=120, rounds=0), verifier=verifier)
    assert (result.stopped, "24" in result.text) == ("budget", True)
    assert result.nfe > 100


def test_a_greedy_answer_that_satisfies_is_all_that_is_paid_for() -> None:
    _, greedy = search(small("greedy"))
    _, result = search(small("revise", budget=400), verifier=wants(greedy.text))
    assert (result.stopped, result.text) == ("satisfied", greedy.text)
    assert result.nfe <= greedy.nfe


def test_rounds_go_on_as_long_as_there_are_passes_left() -> None:
    shape = {"particles": 1, "branching": 1, "gen_length": 16, "steps": 2, "block_length": 16}
    steps, result = search(small("best_of_k", budget=120, **shape), fake_model(()))
    assert result.stopped == "budget"
    assert steps[-1].round > MOST_IDLE + 2  # none of them was idle


def test_with_a_budget_votes_of_all_rounds_count() -> None:
    _, once = search(small("best_of_k"))
    _, often = search(small("best_of_k", budget=4 * once.nfe))
    assert len(often.survivors) > len(once.survivors)


# --- what is re-masked

TEXT = Text(
    logp=np.array([-1, -9, -2, -8, -3, -7, -4, -6, -5, 0.0]),
    movable=np.arange(10) < 8,
    doubt=np.where(np.isin(np.arange(10), (4, 5)), 0.9, 0.0),
)


def masked(
    name: str, text: Text = TEXT, fraction: float = 0.5, times: int = 200
) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [
        np.flatnonzero(REMASKINGS[name].hide(text, fraction, rng)).tolist() for _ in range(times)
    ]


def test_rules_mask_what_they_say() -> None:
    drawn = {name: {tuple(one) for one in masked(name)} for name in REMASKINGS}
    assert drawn["doubted"] == {(4,), (5,), (4, 5)}
    assert drawn["from_doubt"] == {(4, 5, 6, 7)}
    assert drawn["from_doubt_or_earlier"] == {tuple(range(n, 8)) for n in range(5)}
    assert masked("from_doubt_or_earlier").count([4, 5, 6, 7]) > 90
    least_sure = [1, 3, 5, 7, 6, 4, 2, 0]
    assert all(set(one) == set(least_sure[: len(one)]) for one in drawn["unsure"])
    assert len(drawn["random"]) > 30
    assert all(one and max(one) < 8 for rows in drawn.values() for one in rows)


def test_a_doubt_of_a_half_is_no_place_to_begin() -> None:
    text = replace(TEXT, doubt=np.array([0.5, 0, 0.3, 0, 0.6, 0, 0, 0, 0, 0]))
    assert masked("from_doubt", text, times=1) == [[4, 5, 6, 7]]
    assert masked("doubted", text, times=1) == [[4]]


def test_doubted_masks_no_more_than_the_share_allows() -> None:
    doubted = np.isin(np.arange(20), (2, 3, 9, 15))
    text = Text(np.zeros(20), np.ones(20, np.bool_), doubted * 1.0)
    drawn = masked("doubted", text, 0.05)
    assert {len(one) for one in drawn} == {1, 2}
    assert {place for one in drawn for place in one} == {2, 3, 9, 15}


@pytest.mark.parametrize("text", ["€€€€ 2 + 2 = 5", "6 × 7 = 41"])
def test_a_doubt_marks_its_own_characters_whatever_their_bytes(text: str) -> None:
    process = prepare(fake_model(), Job("q")).process
    tokens = np.full(64, END)
    tokens[: len(text.encode())] = list(text.encode())
    start = text.index("2 +" if "2 +" in text else "41")
    _, marked = process.reader.remaskable(tokens, ((start, len(text)),))
    assert bytes(tokens[marked > 0].tolist()).decode() == text[start:]
    _, weighed = process.reader.remaskable(
        tokens, ((start, len(text), 0.4), (start, start + 1, 0.7))
    )
    assert weighed[marked > 0].tolist() == [0.7, *[0.4] * (len(text[start:]) - 1)]
    with pytest.raises(VerifierError, match=r"weight 1\.5; give a number from 0 to 1"):
        process.reader.remaskable(tokens, ((0, 1, 1.5),))


def test_a_contradicted_text_is_masked_from_its_first_wrong_equality() -> None:
    process = prepare(fake_model(), Job(QUESTION, "countdown", small("revise"))).process
    text = "6 + 12 = 18. 18 + 4 = 23. So 23."
    tokens = np.array([[*text.encode(), *[END] * 32]])
    canvas = Canvas(tokens, np.full(tokens.shape, -0.5))

    def where(spans: Any) -> np.ndarray:
        return positions(
            process, canvas, [spans], REMASKINGS["from_doubt"], 0.5, np.random.default_rng(0),
            at_least_one=False,
        )  # fmt: skip

    resumed, remasked = process.remask(canvas, where([(13, 24)]), np.random.default_rng(0))
    hidden = remasked.tokens[0] == MASK
    assert hidden.nonzero()[0].tolist() == list(range(13, len(text) + 4))
    assert (remasked.logp[0][hidden] == 0).all()
    assert resumed.steps == -(-int(hidden.sum()) // 4)
    assert not where(()).any()


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("revise", {"restart_fraction": 0.0}, {False}),
        ("revise", {"restart_fraction": 1.0}, {True}),
        ("revise", {"restart_fraction": 0.5}, {True, False}),
        ("restarts", {}, {True}),
    ],
    ids=str,
)
def test_so_many_of_the_particles_of_a_later_round_start_over(
    method: str, options: dict[str, Any], expected: set[bool]
) -> None:
    settings = small(method, budget=150, particles=8, **options, **ADAPTIVE)
    steps, _ = search(settings, verifier=wants("never said"))
    begun = [step for before, step in pairwise(steps) if before.round != step.round]
    assert {bool(parent < 0) for step in begun for parent in step.parent.tolist()} == expected


def test_every_text_is_continued_from_itself() -> None:
    settings = small("revise", particles=8, rounds=1, restart_fraction=0.0)
    steps, _ = search(settings, verifier=wants("never said"))
    (begun,) = [step for step in steps if step.round == 1 and step.index == 0]
    assert begun.parent.tolist() == list(range(8))


def test_a_registered_rule_is_a_rule_like_any_other() -> None:
    def third(text: Text, fraction: float, rng: np.random.Generator) -> np.ndarray:
        return np.arange(text.logp.size) % 3 == 0

    with pytest.raises(SettingsError, match="remask='third'"):
        Settings("revise", remask="third")
    s3dlm.register_remasking("third", Remasking(third))
    try:
        assert "third" in schema()["remask"]["enum"]
        settings = small("revise", remask="third", steps=64, particles=1, restart_fraction=0.0)
        assert Settings.from_json(settings.to_json()) == settings
        steps, _ = search(settings, verifier=wants("never said"))
        first, second = ([step for step in steps if step.round == n] for n in (0, 1))
        kept = np.arange(64) % 3 > 0
        assert (first[-1].tokens[0, kept] == second[0].tokens[0, kept]).all()
        with pytest.raises(SettingsError, match="'third' exists"):
            s3dlm.register_remasking("third", Remasking(third))
    finally:
        del REMASKINGS._known["third"]
