"""Two replicas behind one address answer as one server does, and one of them may die.

One server is started for all tests, by the command itself; the last test ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import s3dlm
from s3dlm.errors import SettingsError
from tests.server.live import new_client, serving, wait_for

pytest.importorskip("ray.serve")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="replicas are found in /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
KEY = "a key of this test alone"
# Ray's own limits, by which it ends what is only slow on a busy machine.
PATIENT = {f"RAY_SERVE_PROXY_{name}_CHECK_TIMEOUT_S": "900" for name in ("READY", "HEALTH")}
QUESTION = "Target: 45 Numbers: 8, 7, 11"
SMALL = {
    "method": "s3",
    "task": "countdown",
    "gen_length": 32,
    "steps": 8,
    "particles": 2,
    "branching": 2,
}
BODIES = [
    {"model": "tiny", "prompt": QUESTION, "seed": seed, "n": 1 + seed % 2, **SMALL}
    for seed in range(32)
]


class Served:
    """The command's process and a client."""

    def __init__(self, process: subprocess.Popen[str], http: httpx.Client) -> None:
        self.process, self.http = process, http

    def ask(self, body: dict[str, Any]) -> httpx.Response:
        return self.http.post("/v1/completions", json=body)

    def answered(self) -> dict[str, float]:
        """Completions that each replica has answered; 0 of one that is new."""
        text = self.http.get("/metrics").text
        found = dict.fromkeys(
            re.findall(r'^s3dlm_queue_waiting{.*replica="(\w+)".*}', text, re.M), 0.0
        )
        for labels, value in re.findall(r"^s3dlm_requests_total{(.*)} (\S+)", text, re.M):
            if "/v1/completions" in labels:
                found[re.findall(r'replica="(\w+)"', labels)[0]] += float(value)
        return found


def plain(answer: httpx.Response) -> Any:
    """An answer without what belongs to the moment."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    for choice in body["choices"]:
        del choice["search"]["seconds"]
    return body["choices"], body["usage"]


def replica_processes(parent: int) -> list[int]:
    """Processes below the command that Ray calls replicas."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1])
            if b"ServeReplica" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))

    def below(pid: int) -> bool:
        return pid == parent or (pid in parents and below(parents[pid]))

    return [pid for pid in found if below(pid)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    main = "from s3dlm.cli.main import main; main()"
    log = tmp_path_factory.mktemp("replicas") / "log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [sys.executable, "-c", main, "serve", "--port", "0", "--replicas", "2", "--max", "waiting=256", "--max", "seconds=3600"],
            env={**os.environ, **PATIENT, "S3DLM_API_KEY": KEY}, stdout=subprocess.PIPE, stderr=lines, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        words = ("timed out during startup", "not available after 60s")
        if not told and any(each in log.read_text() for each in words):
            pytest.skip("this machine is too busy for Ray's own limit on its start")
        assert told, log.read_text()
        url = re.findall(r"http://127\.0\.0\.1:\d+", told)[0]
        with new_client(url) as http:
            http.headers["Authorization"] = f"Bearer {KEY}"
            yield Served(process, http)
    finally:
        process.terminate()
        process.wait(900)
        process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """What one process answers."""
    with serving(s3dlm.load("tiny", device="cpu"), defaults={}) as live:
        return [plain(live.post("/v1/completions", **body)) for body in BODIES]


def test_concurrent_answers_are_those_of_one_process(served: Served, expected: list[Any]) -> None:
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(served.ask, [*BODIES, *BODIES]))
    assert [plain(answer) for answer in answers] == [*expected, *expected]
    counts = served.answered()
    assert len(counts) == 2
    assert all(counts.values())  # both replicas took part
    assert sum(counts.values()) == 64


def test_keys_limits_and_streams_are_those_of_a_server(served: Served) -> None:
    without = {"Authorization": ""}
    assert served.http.get("/health", headers=without).json() == {"status": "ok"}
    assert served.http.get("/v1/models", headers=without).status_code == 401
    assert served.http.get("/metrics", headers=without).status_code == 401
    assert served.ask({**BODIES[0], "particles": 100}).status_code == 400
    assert served.http.get("/").text.startswith("<!doctype html>")
    whole = served.ask(BODIES[0]).json()["choices"][0]["text"]
    pieces = []
    body = {**BODIES[0], "stream": True, "block_length": 32}
    with served.http.stream("POST", "/v1/completions", json=body) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line.removeprefix("data: "))["choices"]
                pieces += [choice["text"] for choice in choices]
    assert "".join(pieces) == whole


def test_a_search_whose_client_leaves_is_ended(served: Served) -> None:
    body = {"prompt": QUESTION, "method": "revise", "gen_length": 64, "steps": 64, "rounds": 8}
    with served.http.stream("POST", "/v1/search", json=body) as stream:
        assert "settings" in json.loads(next(stream.iter_lines()))
    ended = re.compile(r'^s3dlm_searches_total{.*outcome="cancelled".*} 1', re.M)
    wait_for(lambda: ended.search(served.http.get("/metrics").text))


def test_a_replica_that_is_killed_is_replaced(served: Served, expected: list[Any]) -> None:
    before, stop = set(served.answered()), threading.Event()
    (victim, _), failed = replica_processes(served.process.pid), []

    def client(number: int) -> int:
        """Requests in a row; those that fail are noted with the time at which they were sent."""
        count = 0
        while not stop.is_set():
            index, sent = (number + 8 * count) % len(BODIES), time.monotonic()
            answer = served.ask(BODIES[index])
            if answer.status_code == 200:
                assert plain(answer) == expected[index]
            else:
                failed.append((sent, answer.status_code))
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client, number) for number in range(8)]
        try:
            wait_for(lambda: sum(served.answered().values()) > 80)
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            wait_for(lambda: len(served.answered().keys() - before) == 1)
        finally:
            stop.set()
    assert all(each.result() for each in clients)
    assert len(failed) <= 8  # what the victim was answering, and nothing that was sent later
    assert all(sent < killed and status == 500 for sent, status in failed)


def test_what_was_accepted_is_answered_before_the_end(served: Served) -> None:
    long = {**BODIES[0], "n": 16, "steps": 32}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.ask, long)
        running = re.compile(r"^s3dlm_searches_running{.*} [1-9]", re.M)
        wait_for(lambda: running.search(served.http.get("/metrics").text))
        served.process.send_signal(signal.SIGTERM)
        wait_for(lambda: served.http.get("/health").status_code == 503)
        refused = served.ask(BODIES[0])
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert len(plain(answer.result())[0]) == 16
    assert served.process.wait(900) == 0


@pytest.mark.parametrize(
    ("cluster", "wanted", "places"),
    [
        ({"GPU": 4.0, "CPU": 8.0}, {}, (4, {"num_gpus": 1, "num_cpus": 0})),
        ({"GPU": 4.0, "CPU": 8.0}, {"replicas": "2"}, (2, {"num_gpus": 1, "num_cpus": 0})),
        ({"GPU": 4.0}, {"load": {"devices": "cuda:0,cuda:1"}}, (2, {"num_gpus": 2, "num_cpus": 0})),
        ({"GPU": 4.0, "CPU": 8.0}, {"replicas": 2, "device": "cpu"}, (2, {"num_cpus": 4})),
        ({"CPU": 8.0}, {"replicas": "all"}, (8, {"num_cpus": 1})),
    ],
)
def test_one_replica_per_device(
    cluster: dict[str, float], wanted: Any, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3dlm.extras.ray import serving as module

    there = SimpleNamespace(cluster_resources=lambda: cluster, is_initialized=lambda: True)
    monkeypatch.setattr(module, "ray", there)
    made = module.build_app(wanted)._bound_deployment
    given = {name: made.ray_actor_options.get(name) for name in places[1]}
    assert (made.num_replicas, given) == places
    scaled = module.build_app({"replicas": "1-2"})._bound_deployment
    between = scaled._deployment_config.autoscaling_config
    assert (between.min_replicas, between.max_replicas) == (1, 2)


def test_without_a_cluster_this_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3dlm.extras.ray import serving as module

    monkeypatch.setattr(module, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setattr(module, "_this_machine", lambda: {"GPU": 0, "CPU": 4})
    assert module.build_app({})._bound_deployment.num_replicas == 4
    larger = module.build_app({"replicas": "8"})._bound_deployment  # the cluster may be larger
    assert (larger.num_replicas, larger.ray_actor_options["num_cpus"]) == (8, 1)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"replicas": "3"}, "need 3 cores, and there are 2"),
        ({"replicas": "0"}, "give all, 2, or 1-4"),
        ({"replicas": "many"}, "give all, 2, or 1-4"),
        ({"device": "cuda:1"}, "Ray's choice"),
        ({"replica": 2}, "replica"),
        ({"limits": {"waiting": -1}}, "waiting"),
        ({"limits": {"wating": 1}}, "wating"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    wanted: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3dlm.extras.ray import serving as module

    few = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0}, is_initialized=lambda: True)
    monkeypatch.setattr(module, "ray", few)
    with pytest.raises(SettingsError, match=told):
        module.build_app(wanted)
