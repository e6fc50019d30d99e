from __future__ import annotations

import dataclasses

import pytest

from s3dlm.search.select import SELECTIONS, Survivor
from s3dlm.settings import Settings


def one(
    answer: str | None, *, nll: float = 1.0, weight: float = 0.0, score: float | None = 0.5
) -> Survivor:
    return Survivor(f"text {answer} {nll}", answer, 3, score, {}, weight, nll, 0.5)


def pick(name: str, survivors: list[Survivor]) -> Survivor:
    return SELECTIONS[name].choose(survivors)


SCORED = [one("7", score=0.3), one("7", score=0.3), one("18", score=0.9)]
SEEN = [one("7", score=0.3), one("18", score=0.9), one(None, score=1.0)]
WEIGHED = [one("7"), one("7"), one("18", weight=2.0)]
TIED = [one("7", nll=2), one("18", nll=3), one("7", nll=5), one("18", nll=1)]


@pytest.mark.parametrize(
    ("name", "survivors", "answer", "nll"),
    [
        ("majority", SCORED, "7", 1),
        ("verified", SCORED, "18", 1),  # the verifier can outvote the majority
        ("verified", [one("7", score=0.0), one("18", score=0.1)], "18", 1),
        ("best_seen", SEEN, "18", 1),  # a text without an answer is no answer
        # Equal answers count together, and the most probable text of them is shown.
        ("majority", [one("7"), one("18", nll=3), one("18", nll=2), one(None, nll=0)], "18", 2),
        ("majority", TIED, "18", 1),  # ties go to the lowest NLL
        ("weighted", WEIGHED, "18", 1),
        ("majority", WEIGHED, "7", 1),
        ("first", WEIGHED, "7", 1),
    ],
)
def test_who_is_chosen(name: str, survivors: list[Survivor], answer: str, nll: float) -> None:
    chosen = pick(name, survivors)
    assert (chosen.answer, chosen.nll) == (answer, nll)


def test_without_any_answer_the_best_text_is_returned() -> None:
    survivors = [one(None, score=0.2), one(None, score=0.9, nll=9), one(None, score=0.9, nll=4)]
    assert pick("majority", survivors).nll == 4
    unscored = [one(None, score=None, nll=2), one(None, score=None, nll=1)]
    assert pick("majority", unscored).nll == 1


def test_equal_weights_in_another_order_are_still_a_tie() -> None:
    parts = [0.1, 0.2, 0.3]
    left = [one("a", nll=2, weight=w) for w in parts]
    right = [one("b", nll=1, weight=w) for w in reversed(parts)]
    assert pick("weighted", [*left, *right]).answer == "b"


def test_lambda_decides_the_vote_of_tilting() -> None:
    """λ = 0 is the majority vote; a large λ lets the best score win against any number."""
    majority = [one("7", score=0.8), one("7", score=0.8), one("18", score=0.9)]
    choose = SELECTIONS[Settings("tilting").search.selection].choose

    def chosen(lam: float) -> str | None:
        weighted = [dataclasses.replace(s, log_weight=lam * (s.score or 0.0)) for s in majority]
        return choose(weighted).answer

    assert (chosen(0.0), chosen(30.0)) == ("7", "18")


def test_agreement_breaks_near_ties_of_the_verifier_and_no_others() -> None:
    near = [one("7", score=0.80), one("7", score=0.80), one("18", score=0.81)]
    assert pick("agreement", near).answer == "7"
    clear = [one("7", score=0.80), one("7", score=0.80), one("18", score=0.85)]
    assert pick("agreement", clear).answer == "18"
    chosen = pick("agreement", [one("7", score=0.4), one("7", score=0.6), one(None, score=1.0)])
    assert (chosen.answer, chosen.score) == ("7", 0.6)
    tied = [one("7", nll=2), one("18", nll=1), one("7", nll=3), one("18", nll=4)]
    assert pick("agreement", tied).nll == 1
    assert pick("agreement", [one(None, score=0.2), one(None, score=0.3)]).score == 0.3
