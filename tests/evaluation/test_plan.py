"""Plans: equal runs are one condition, whatever they are called, and hashes stay put."""

from __future__ import annotations

import pytest

from s3dlm.errors import SettingsError
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation import protocol
from s3dlm.evaluation.plan import Condition, settings_of
from s3dlm.settings import Settings
from s3dlm.tasks import Loaded

BASE = Settings()


def test_a_sweep_pays_for_equal_runs_once() -> None:
    sweeps = {"particles": [1, 2, 4], "branching": [1, 2, 4]}
    found = plans.grid(["gsm8k"], ["baseline", "best_of_k", "s3"], BASE, sweeps)
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


def test_greedy_is_the_baseline_without_sampling() -> None:
    greedy = settings_of("greedy", BASE)
    assert (greedy.method, greedy.temperature, greedy.particles) == ("baseline", 0.0, 1)
    assert settings_of("baseline", BASE).temperature == BASE.temperature


def test_tuned_settings_are_a_methods_own_unless_swept() -> None:
    tuned = {"s3": {"temperature": 0.3, "lam": 4.0}}
    own = settings_of("s3", BASE, tuned)
    assert (own.temperature, own.lam) == (0.3, 4.0)
    assert settings_of("best_of_k", BASE, tuned).temperature == BASE.temperature
    swept = plans.grid(["gsm8k"], ["s3"], BASE, {"lam": [1.0, 2.0]}, tuned)
    assert [(c.settings.lam, c.settings.temperature) for c in swept] == [(1.0, 0.3), (2.0, 0.3)]


def test_unknown_labels_and_axes_are_named() -> None:
    with pytest.raises(SettingsError, match="did you mean 's3'"):
        plans.grid(["gsm8k"], ["s33"], BASE)
    with pytest.raises(SettingsError, match="sweep='seeds' is unknown"):
        plans.grid(["gsm8k"], ["s3"], BASE, {"seeds": [1]})


def test_the_reproduction_holds_every_table_and_curve() -> None:
    loaded = {"gsm8k": Loaded((), "", 0)}
    found = protocol.reproduction(loaded, BASE, {}, (0, 1, 2), sweep_problems=100).conditions
    main = [c for c in found if c.problems is None]
    assert [c.label for c in main] == [*protocol.METHODS, *protocol.BESIDE]
    assert {c.label for c in main if c.seeds == 1} == set(protocol.BESIDE)
    swept = {
        (c.settings.particles, c.settings.branching)
        for c in found
        if c.label == "s3" and c.settings.block_length == 64
    }
    assert swept == {(n, b) for n in (1, 2, 4, 8, 16) for b in (1, 2, 4)}
    lengths = {c.settings.block_length for c in found if c.label == "baseline"}
    assert lengths == {2, 4, 8, 16, 32, 64}
    assert len({(c.label, c.spec) for c in found}) == len(found)
    assert {c.seeds for c in found} == {None, 1}
