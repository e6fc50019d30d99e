"""Children of one step that must differ."""

from __future__ import annotations

from typing import Any

from s3dlm.search.step import Step
from tests.fakes import search, small


def steps_of(sampling: str, **options: Any) -> list[Step]:
    return search(small("s3", child_sampling=sampling, **options))[0]


def test_filled_children_never_repeat_each_other_while_they_are_open() -> None:
    for step in steps_of("filled"):
        open_ = step.tokens[(step.tokens == 256).any(axis=1)]
        assert len({row.tobytes() for row in open_}) == len(open_) == step.nfe


def test_filled_uses_more_of_the_budget_than_distinct_and_distinct_more_than_none() -> None:
    """At a low temperature most parents have nothing new to offer."""
    nfe = {
        sampling: sum(
            step.nfe for seed in range(4) for step in steps_of(sampling, seed=seed, temperature=0.3)
        )
        for sampling in ("independent", "distinct", "filled")
    }
    assert nfe["independent"] < nfe["distinct"] <= nfe["filled"]
