"""Sharing forwards pays: sixteen at once against sixteen one after another, on the shipped model."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable

import pytest

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.base import Model
from s3dlm.tasks.problems import problems
from tests.server.live import serving

# Short rows: a request alone leaves the processor waiting, so sharing is worth most. With the
# server's own settings a row is long enough to keep a core busy by itself: there one core gains what
# a forward has in fixed costs, and more cores gain because small matrices cannot be split.
SHORT = {"method": "baseline", "gen_length": 14, "steps": 14, "block_length": 14}
CASES = [("short", SHORT, 2.0), ("default", {}, 1.2)]  # name, settings, least gain
ATTEMPTS = 4  # a machine busy with other things may spoil one


@pytest.fixture(scope="module")
def tiny() -> Model:
    try:
        return s3dlm.load("tiny", progress=False)
    except ModelError as error:
        pytest.skip(str(error))


def timed(work: Callable[[], list[str]]) -> tuple[float, list[str]]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


@pytest.mark.slow  # a measurement: what else the machine does decides it as much as the code
@pytest.mark.parametrize(("name", "settings", "least"), CASES, ids=[case[0] for case in CASES])
def test_sixteen_at_once_are_faster(
    tiny: Model,
    name: str,
    settings: dict[str, object],
    least: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts = [problem.question for problem in problems("countdown", "test", 16)]
    with (
        serving(tiny, defaults=settings) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(16) as pool,
    ):

        def ask(prompt: str) -> str:
            body = {"model": "tiny", "prompt": prompt, "task": "countdown"}
            return str(http.post("/v1/completions", json=body).json()["choices"][0]["text"])

        ask("warm up")
        gains: list[float] = []
        while len(gains) < ATTEMPTS and max(gains, default=0) < least:
            one_by_one, alone = timed(lambda: [ask(prompt) for prompt in prompts])
            at_once, together = timed(lambda: list(pool.map(ask, prompts)))
            assert together == alone
            gains.append(one_by_one / at_once)
    with capsys.disabled():
        shown = ", ".join(f"{gain:.2f}" for gain in gains)
        print(f"\n{name}: sixteen at once are {shown} times as fast as one after another")
    assert max(gains) >= least, gains
