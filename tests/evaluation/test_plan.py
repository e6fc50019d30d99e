"""Plans: equal runs are one condition, whatever they are called, and hashes stay put."""

from __future__ import annotations

from typing import Any

import pytest

from s3dlm.errors import SettingsError
from s3dlm.evaluation import paper
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.plan import Condition, settings_for
from s3dlm.search.methods import find_method
from s3dlm.search.smc import S3, S3Paper
from s3dlm.settings import Settings, has
from s3dlm.tasks import Loaded

BASE = Settings("s3")


def defaults(method: str, task: str | None = None) -> Settings:
    return Settings(method)


def tuned_to(method: str, values: dict[str, Any]) -> Settings:
    """Those of the values that the method has."""
    own = {name: value for name, value in values.items() if has(find_method(method), name)}
    return Settings(method, **own)


def test_a_sweep_pays_for_equal_runs_once() -> None:
    sweeps = {"particles": [1, 2, 4], "branching": [1, 2, 4]}
    found = plans.grid(["gsm8k"], ["baseline", "best_of_k", "s3"], defaults, sweeps=sweeps)
    count = {
        label: sum(c.label == label for c in found) for label in ("baseline", "best_of_k", "s3")
    }
    assert count == {"baseline": 1, "best_of_k": 5, "s3": 9}  # K ∈ {1, 2, 4, 8, 16}


def test_the_seed_is_no_part_of_a_condition() -> None:
    one = Condition("gsm8k", "s3", BASE)
    assert one.spec == Condition("gsm8k", "s3", BASE.replace(seed=7)).spec
    assert one.spec == Condition("gsm8k", "s3", BASE, problems=3, seeds=1).spec
    others = [Condition("arc", "s3", BASE), Condition("gsm8k", "s3", BASE.replace(lam=2.0))]
    assert len({one.spec, *(c.spec for c in others)}) == 3
    assert Condition.from_json(one.to_json()) == one


def test_a_given_setting_wins_over_the_methods_own() -> None:
    def tuned(method: str, task: str | None) -> Settings:
        return tuned_to(method, {"temperature": 0.3, "lam": 4.0})

    own = settings_for("s3", tuned)
    assert (own.decoding.temperature, own.to_json()["lam"]) == (0.3, 4.0)
    swept = plans.grid(["gsm8k"], ["s3"], tuned, sweeps={"lam": [1.0, 2.0]})
    assert [(c.value("lam"), c.value("temperature")) for c in swept] == [(1.0, 0.3), (2.0, 0.3)]
    paper = settings_for("s3_paper", tuned, {"lam": 3.0}).search
    assert isinstance(paper, S3)
    assert paper.lam == 1.0


def test_a_setting_applies_to_the_methods_that_use_it() -> None:
    found = plans.grid(["gsm8k"], ["best_of_k", "s3"], defaults, {"lam": 5.0, "steps": 32})
    assert [(c.value("lam"), c.value("steps")) for c in found] == [(None, 32), (5.0, 32)]
    greedy = settings_for("greedy", defaults, {"temperature": 1.0})  # the baseline, and no chance
    assert (greedy.search.like, greedy.decoding.temperature) == ("baseline", 0.0)

    def tuned(method: str, task: str | None = None) -> Settings:
        return Settings(method, **({"reveal": "threshold"} if method == "revise" else {}))

    found = plans.grid(["gsm8k"], ["s3", "revise"], tuned, {"steps": 32})
    assert [c.value("steps") for c in found] == [32, None]  # a threshold has no number of steps


@pytest.mark.parametrize(
    ("labels", "given", "sweeps", "said"),
    [
        (["baseline", "best_of_k"], {"lam": 5.0}, {}, "lam has no effect on baseline, best_of_k"),
        (["baseline"], {}, {"branching": [1, 2]}, "branching has no effect on baseline"),
        (["s3"], {"seed": 3}, {}, "seed is set by --seeds"),
        (["s33"], {}, {}, "did you mean 's3'"),
        (["s3"], {}, {"seeds": [1]}, "setting='seeds' is unknown"),
        (["s3"], {"policcy": "random"}, {}, "did you mean 'policy'"),
    ],
)
def test_what_has_no_effect_or_is_unknown_is_named(
    labels: list[str], given: dict[str, Any], sweeps: dict[str, list[int]], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        plans.grid(["gsm8k"], labels, defaults, given, sweeps)


def test_the_main_comparison_of_a_sweep_is_the_default_point_else_the_first() -> None:
    found = plans.grid(["gsm8k"], ["best_of_k", "s3"], defaults, sweeps={"particles": [1, 2, 4]})
    assert [(c.label, c.budget) for c in found if c.main] == [("best_of_k", (8, 1)), ("s3", (4, 2))]
    other = plans.grid(["gsm8k"], ["s3"], defaults, sweeps={"particles": [16, 32]})
    assert [c.budget for c in other if c.main] == [(16, 2)]


def test_accuracy_on_code_is_called_pass_at_1() -> None:
    titles = [plans.title_of(task) for task in ("humaneval", "mbpp", "gsm8k")]
    assert titles == ["HumanEval (pass@1)", "MBPP (pass@1)", "GSM8K"]


LOADED = {"gsm8k": Loaded((), "", 0)}


def test_the_reproduction_holds_every_table_and_curve() -> None:
    found = paper.reproduction(LOADED, defaults, (0, 1, 2), sweep_problems=100).conditions
    main = [c for c in found if c.main]
    once = [label for label in paper.ONE_SEED if label != "s3_paper"]  # it would be s3 again
    assert [c.label for c in main] == [*paper.MAIN, *once]
    assert {c.label for c in main if c.seeds == 1} == {"greedy", *once}
    swept = {c.budget for c in found if c.label == "s3" and c.value("block_length") == 64}
    assert swept == {(n, b) for n in (1, 2, 4, 8, 16) for b in (1, 2, 4)}
    lengths = {c.value("block_length") for c in found if c.label == "baseline"}
    assert lengths == {2, 4, 8, 16, 32, 64}
    assert len({(c.label, c.spec) for c in found}) == len(found)
    assert {c.seeds for c in found} == {None, 1}
    given = paper.reproduction(LOADED, defaults, (0,), overrides={"temperature": 0.3}).conditions
    assert {c.settings.decoding.temperature for c in given} == {0.0, 0.3}


def test_a_model_that_recommends_another_lambda_is_also_asked_with_the_papers() -> None:
    def tuned(method: str, task: str | None = None) -> Settings:
        return tuned_to(method, {"lam": 10.0})

    found = paper.reproduction(LOADED, tuned, (0,), sweep_problems=0)
    (asked,) = (c.settings.search for c in found.conditions if c.label == "s3_paper")
    assert isinstance(asked, S3Paper)


def test_smaller_sizes_are_parts_of_larger_ones() -> None:
    """So that a folder can go on from an hour to a day to everything."""
    hour, day, full = (
        {(c.label, c.spec) for c in paper.reproduction(LOADED, defaults, (0,), size).conditions}
        for size in (paper.SIZES[name] for name in ("hour", "day", "full"))
    )
    assert hour < day < full
