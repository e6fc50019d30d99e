"""Forward passes are shared fairly: nobody starves, and small requests do not wait for wide ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s3dlm
from s3dlm.engine import Job
from s3dlm.job import prepare
from s3dlm.server.batching import Demand, FairShare, ServerBatcher
from s3dlm.settings import Settings
from tests.fakes import fake_model
from tests.server.live import held_model, patient, serving, wait_for

FLOWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 64)),
    min_size=2,
    max_size=12,
)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(FLOWS)
def test_nobody_starves_and_no_pass_is_too_large(flows: list[tuple[str, int, int]]) -> None:
    fair = FairShare(128)
    demands = [Demand(key, flow[:2], flow[2]) for key, flow in enumerate(flows)]
    served: set[tuple[str, int]] = set()
    for _ in range(100):
        keys = fair.choose(demands)
        assert keys
        assert len(set(keys)) == len(keys)
        assert len(keys) == 1 or sum(flows[key][2] for key in keys) <= 128
        served |= {flows[key][:2] for key in keys}
    assert served == {flow[:2] for flow in flows}


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.integers(1, 64), min_size=3, max_size=12).filter(lambda sizes: sum(sizes) > 32))
def test_clients_are_served_equally(sizes: list[int]) -> None:
    """Whatever the sizes, canvases per client differ by no more than one step and one quantum."""
    fair = FairShare(32)
    demands = [Demand(key, (f"client {key}", 0), size) for key, size in enumerate(sizes)]
    served = Counter(dict.fromkeys(range(len(sizes)), 0))
    for _ in range(200):
        served.update({key: sizes[key] for key in fair.choose(demands)})
    assert max(served.values()) - min(served.values()) <= 2 * 64 + 32


def test_all_take_part_when_all_fit() -> None:
    demands = [Demand(key, ("a", key), 16) for key in range(8)]
    assert FairShare(128).choose(demands) == list(range(8))


def test_many_requests_of_one_client_do_not_crowd_out_another() -> None:
    fair = FairShare(64)
    greedy = [Demand(key, ("greedy", key), 16) for key in range(20)]
    demands = [*greedy, Demand(20, ("other", 20), 16)]
    assert sum(20 in fair.choose(demands) for _ in range(20)) >= 9


def test_a_newcomer_does_not_catch_up_on_the_past() -> None:
    fair = FairShare(16)
    old = [Demand(key, (f"old {key}", 0), 16) for key in range(2)]
    for _ in range(100):
        fair.choose(old)
    both = [*old, Demand(2, ("new", 0), 16)]
    chosen = Counter(key for _ in range(30) for key in fair.choose(both))
    assert max(chosen.values()) - min(chosen.values()) <= 2


@pytest.mark.parametrize("verifier", ["paper", "self"])
def test_a_small_request_does_not_wait_for_wide_ones(verifier: str) -> None:
    model, gate = held_model()
    sizes = {"gen_length": 120, "steps": 20, "block_length": 120, "particles": 16, "branching": 4}
    wide = {**sizes, "look_aheads": 8, "verifier": verifier}
    small = {"gen_length": 24, "steps": 6, "block_length": 24, "particles": 1, "branching": 1}
    order: list[str] = []
    with serving(model, limits=patient(batch=64)) as live:

        def ask(name: str, own: dict[str, Any]) -> int:
            status = live.ask(name, **own).status_code
            order.append(name)
            return status

        done = [live.pool.submit(ask, f"wide {number}", wide) for number in range(3)]
        gate.wait_until_reached()
        wait_for(lambda: sum(live.scheduler.load.values()) == 3)
        done.append(live.pool.submit(ask, "small", small))
        wait_for(lambda: sum(live.scheduler.load.values()) == 4)
        live.wait_for_queue(len(live.scheduler.waiting))
        gate.set()
        assert [future.result() for future in done] == [200] * 4
    assert order[0] == "small"


@pytest.mark.parametrize("verifier", ["paper", "self"])
def test_no_demand_is_larger_than_a_pass(verifier: str) -> None:
    """What a search asks for at once is forwarded in portions, and its answer stays the same."""
    sizes = {"gen_length": 16, "steps": 4, "block_length": 16, "particles": 6, "branching": 6}
    settings = Settings("s3", **sizes, look_aheads=4, verifier=verifier, temperature=1.0)
    model, question = fake_model(context=1024), "Target: 24 Numbers: 6, 4, 12"
    alone = s3dlm.generate(model, question, task="countdown", settings=settings)
    batcher, results = ServerBatcher(model, lambda: None, patient(batch=20)), []
    batcher.start(prepare(model, Job(question, "countdown", settings)), "client")
    portions = 0
    while batcher.running:
        assert batcher.rows <= 20
        portions += batcher.rows == 10
        events = batcher.step() if batcher.rows else batcher.collect()
        results += [event for _, event in events if isinstance(event, s3dlm.Result)]
    assert portions > 2
    assert (results[0].text, results[0].nfe) == (alone.text, alone.nfe)
    assert results[0].survivors == alone.survivors
