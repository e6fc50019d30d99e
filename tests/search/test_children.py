"""Children that differ, a temperature that rises on collapse, and a search that stops in time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import s3dlm
from s3dlm.engine import Job
from s3dlm.errors import SettingsError
from s3dlm.jobs import prepare
from s3dlm.models.forward import Rows
from s3dlm.search.loop import Step
from s3dlm.settings import Settings
from tests.fakes import fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 32, "temperature": 1.0, "lam": 5.0}


def steps_of(settings: Settings) -> list[Step]:
    *steps, _ = s3dlm.stream(fake_model(), QUESTION, task="countdown", settings=settings)
    return [step for step in steps if isinstance(step, Step)]


def test_filled_children_never_repeat_each_other_while_they_are_open() -> None:
    for step in steps_of(Settings(siblings="filled", **SMALL)):
        open_ = step.tokens[(step.tokens == 256).any(axis=1)]
        assert len({row.tobytes() for row in open_}) == len(open_) == step.rows


def test_filled_uses_more_of_the_budget_than_distinct_and_distinct_more_than_none() -> None:
    """At a low temperature most parents have nothing new to offer."""
    cold = {**SMALL, "temperature": 0.3}
    rows = {
        siblings: sum(
            step.rows
            for seed in range(4)
            for step in steps_of(Settings(siblings=siblings, seed=seed, **cold))
        )
        for siblings in ("independent", "distinct", "filled")
    }
    assert rows["independent"] < rows["distinct"] <= rows["filled"]


def test_a_filled_child_descends_from_the_parent_it_names() -> None:
    steps = steps_of(Settings(siblings="filled", **SMALL))
    for before, after in itertools.pairwise(steps):
        survivors = before.tokens[before.survivor]
        for child, parent in zip(after.tokens, after.parent, strict=True):
            known = survivors[parent] != 256
            assert (child[known] == survivors[parent][known]).all()


def test_filled_cannot_keep_families_apart() -> None:
    with pytest.raises(SettingsError, match=r"filled.*ess_threshold"):
        prepare(fake_model(), Job(QUESTION, None, Settings(siblings="filled", ess_threshold=0.5)))


def test_the_heat_is_on_only_while_children_repeat_each_other() -> None:
    settings = Settings(heat=2.0, **SMALL)
    one = prepare(fake_model(), Job(QUESTION, "countdown", settings))
    asked = next(one.search)
    assert isinstance(asked, Rows)
    assert asked.temperature == 2.0  # all particles are the empty canvas
    canvas = one.process.start().take(np.zeros(4, dtype=np.int64))
    canvas.tokens[:, 0] = [1, 2, 3, 4]
    assert one.process.ask(canvas.tokens, 1, np.random.default_rng(0), 1.0).temperature == 1.0


def test_heat_makes_more_rows_differ() -> None:
    cold = {**SMALL, "temperature": 0.5}
    rows = [
        sum(
            step.rows
            for seed in range(4)
            for step in steps_of(Settings(heat=heat, seed=seed, **cold))
        )
        for heat in (1.0, 3.0)
    ]
    assert rows[0] < rows[1]


def test_patience_ends_the_search_with_the_text_all_agree_on() -> None:
    settings = Settings(patience=2, policy="random", **{**SMALL, "temperature": 0.01})
    model = fake_model(["6 * 4"], push=30.0)
    endless = settings.replace(patience=0)
    whole = s3dlm.generate(model, QUESTION, task="countdown", settings=endless)
    *steps, result = s3dlm.stream(model, QUESTION, task="countdown", settings=settings)
    assert isinstance(result, s3dlm.Result)
    assert len(steps) == 2
    assert result.text == whole.text
    assert result.nfe < whole.nfe
    assert all(np.isfinite(one.nll) for one in result.survivors)


def test_patience_waits_for_survivors_that_disagree() -> None:
    settings = Settings(patience=2, **SMALL)
    model = fake_model(push=30.0)
    *steps, _ = s3dlm.stream(model, QUESTION, task="countdown", settings=settings)
    texts = [len({row.tobytes() for row in step.clean[step.survivor]}) for step in steps]
    assert max(texts) > 1
    assert texts[-2:] == [1, 1] or len(steps) == settings.steps


def test_patience_waits_for_survivors_that_agree_and_are_not_sure() -> None:
    settings = Settings(patience=1, **{**SMALL, "temperature": 0.01})
    model = fake_model(["6 * 4"])
    *steps, _ = s3dlm.stream(model, QUESTION, task="countdown", settings=settings)
    texts = [len({row.tobytes() for row in step.clean[step.survivor]}) for step in steps]
    assert texts[0] == 1
    assert len(steps) > 1


@pytest.mark.parametrize("method", ["best_of_k", "hex", "particle_gibbs"])
def test_patience_is_refused_where_nothing_looks_ahead_together(method: str) -> None:
    with pytest.raises(SettingsError, match="patience=2 needs a method that looks ahead"):
        prepare(fake_model(), Job(QUESTION, None, Settings(method=method, patience=2)))
