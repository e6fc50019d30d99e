"""Children of one step that must differ."""

from __future__ import annotations

import itertools

from s3dlm.search.step import Step
from s3dlm.settings import Settings
from tests.fakes import events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 32, "temperature": 1.0, "lam": 5.0}


def steps_of(settings: Settings) -> list[Step]:
    *steps, _ = events_of(fake_model(), QUESTION, task="countdown", settings=settings)
    return [step for step in steps if isinstance(step, Step)]


def test_filled_children_never_repeat_each_other_while_they_are_open() -> None:
    for step in steps_of(Settings("s3", child_sampling="filled", **SMALL)):
        open_ = step.tokens[(step.tokens == 256).any(axis=1)]
        assert len({row.tobytes() for row in open_}) == len(open_) == step.nfe


def test_filled_uses_more_of_the_budget_than_distinct_and_distinct_more_than_none() -> None:
    """At a low temperature most parents have nothing new to offer."""
    cold = {**SMALL, "temperature": 0.3}
    nfe = {
        sampling: sum(
            step.nfe
            for seed in range(4)
            for step in steps_of(Settings("s3", child_sampling=sampling, seed=seed, **cold))
        )
        for sampling in ("independent", "distinct", "filled")
    }
    assert nfe["independent"] < nfe["distinct"] <= nfe["filled"]


def test_a_filled_child_descends_from_the_parent_it_names() -> None:
    steps = steps_of(Settings("s3", child_sampling="filled", **SMALL))
    for before, after in itertools.pairwise(steps):
        survivors = before.tokens[before.survivor]
        for child, parent in zip(after.tokens, after.parent, strict=True):
            known = survivors[parent] != 256
            assert (child[known] == survivors[parent][known]).all()
