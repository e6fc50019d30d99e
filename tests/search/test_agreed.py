"""`stop_when="agreed"`: samples until the vote is decided, never more than were asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.search.agreed import ahead, needed
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings, only_used
from tests.fakes import COUNTDOWN, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 64, "temperature": 1.0, "lam": 8.0}
VOTING = [name for name, row in METHODS.items() if row.needs_chance]


def run(
    method: str, noise: float = 1.0, texts: tuple[str, ...] = COUNTDOWN, **options: object
) -> s3dlm.Result:
    used = only_used(method, {**SMALL, **options}, SMALL)
    settings = Settings(method, **{**used, "stop_when": "agreed", **options})  # type: ignore[arg-type]
    return s3dlm.generate(
        fake_model(texts, noise=noise), QUESTION, task="countdown", settings=settings
    )


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0), (1, 0), (4, 0), (5, 3), (40, 30), (800, 700)]
)
def test_the_probability_is_that_of_the_beta_distribution(first: int, second: int) -> None:
    theta = np.random.default_rng(0).beta(first + 1, second + 1, 200_000)
    assert ahead(first, second) == pytest.approx((theta > 0.5).mean(), abs=0.01)


def test_parts_of_votes_count_for_the_second_only() -> None:
    assert ahead(4.9, 0.1) == ahead(4, 1) < ahead(4, 0)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 1), (10, 9)])
def test_no_fewer_samples_could_decide(first: int, second: int) -> None:
    more = needed(first, second, 0.95)
    assert ahead(first + more, second) >= 0.95 > ahead(first + more - 1, second)


def test_samples_that_agree_end_the_vote_after_four() -> None:
    alike = ("<answer>6 * 4</answer>",) * 2
    result = run("best_of_k", 0.0, alike, particles=16, branching=2)
    assert (len(result.survivors), result.stopped) == (4, "agreed")
    assert run("best_of_k", 0.0, alike, particles=16, decided_at=0.999).votes == 9


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", ["best_of_k", "tilting"])
def test_a_vote_ends_when_it_is_decided_and_not_before(method: str, seed: int) -> None:
    result = run(method, noise=3.0, particles=12, branching=1, seed=seed, temperature=2.0)
    assert len(result.survivors) <= 12
    counts = Counter(s.answer for s in result.survivors if s.answer is not None)
    first, second = (*sorted(counts.values(), reverse=True), 0, 0)[:2]
    if method == "best_of_k":
        assert (ahead(first, second) >= 0.95) == (result.stopped == "agreed")
    assert result.stopped == "agreed" or len(result.survivors) == 12
    assert result.nfe <= result.settings.most_nfe


@pytest.mark.parametrize("budget", [2, 40, 150])
@pytest.mark.parametrize("method", VOTING)
def test_every_method_can_vote_within_a_budget(method: str, budget: int) -> None:
    own = {"rounds": 0, "remask": "all"} if method == "revise" else {}
    result = run(method, budget=budget, selection="majority", **own)
    assert result.nfe <= budget
    assert result.stopped in ("agreed", "budget")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("verified_best_of_k", {}, "needs a vote, and selection='verified' is none"),
        ("s3", {}, "needs a budget in method='s3'"),
        ("best_of_k", {"rounds": 2}, "takes fresh samples"),
        ("best_of_k", {"stop_when": "satisfied"}, "changes nothing"),
        ("best_of_k", {"stop_when": "never", "decided_at": 0.9}, "changes nothing"),
        ("best_of_k", {"decided_at": 1.0}, "decided_at=1.0 is not allowed"),
        ("baseline", {"budget": 50}, "needs a vote|changes nothing"),
        ("unmaskfork", {"budget": 50, "selection": "majority"}, "always finds the same answers"),
    ],
)
def test_what_cannot_be_voted_on_is_refused(
    method: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        run(method, **options)


def test_holes_of_several_lengths_have_no_vote() -> None:
    with pytest.raises(SettingsError, match="holes of one length"):
        s3dlm.infill(fake_model(), "It is [[2-4]].", method="best_of_k", stop_when="agreed")
