from __future__ import annotations

from s3dlm.search.select import SELECTIONS, Survivor


def one(
    answer: str | None, *, nll: float = 1.0, weight: float = 0.0, score: float | None = 0.5
) -> Survivor:
    return Survivor(f"text {answer} {nll}", answer, 3, score, {}, weight, nll, 0.5)


def test_majority_counts_equal_answers_and_shows_the_most_probable_text() -> None:
    chosen = SELECTIONS["majority"](
        [one("7"), one("18", nll=3), one("18", nll=2), one(None, nll=0)]
    )
    assert (chosen.answer, chosen.nll) == ("18", 2)


def test_ties_go_to_the_lowest_nll() -> None:
    survivors = [one("7", nll=2), one("18", nll=3), one("7", nll=5), one("18", nll=1)]
    assert SELECTIONS["majority"](survivors).answer == "18"


def test_weighted_vote_and_heaviest() -> None:
    survivors = [one("7"), one("7"), one("18", weight=2.0)]
    assert SELECTIONS["weighted"](survivors).answer == "18"
    assert SELECTIONS["heaviest"](survivors).answer == "18"
    assert SELECTIONS["majority"](survivors).answer == "7"
    assert SELECTIONS["first"](survivors).answer == "7"


def test_without_any_answer_the_best_text_is_returned() -> None:
    survivors = [one(None, score=0.2), one(None, score=0.9, nll=9), one(None, score=0.9, nll=4)]
    assert SELECTIONS["majority"](survivors).nll == 4
    unscored = [one(None, score=None, nll=2), one(None, score=None, nll=1)]
    assert SELECTIONS["majority"](unscored).nll == 1


def test_equal_weights_in_another_order_are_still_a_tie() -> None:
    parts = [0.1, 0.2, 0.3]
    left = [one("a", nll=2, weight=w) for w in parts]
    right = [one("b", nll=1, weight=w) for w in reversed(parts)]
    assert SELECTIONS["weighted"]([*left, *right]).answer == "b"
