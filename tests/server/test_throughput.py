"""Batching pays: sixteen requests at once need far fewer forward passes than one after another.

Passes are counted and asserted; seconds are only printed, since they depend on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import s3dlm
from s3dlm import tasks
from s3dlm.errors import ModelError
from s3dlm.models.base import Model
from tests.server.live import serving

# Short canvases leave a processor waiting, so that batching saves most. With the default settings a
# canvas keeps a core busy by itself.
SHORT = {"method": "baseline", "gen_length": 14, "steps": 14, "block_length": 14}
CASES = [("short", SHORT), ("default", {})]
LEAST_GAIN = 4  # times fewer passes, of at most sixteen


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


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), CASES, ids=[case[0] for case in CASES])
def test_sixteen_at_once_share_forward_passes(
    tiny: Model, name: str, settings: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tasks.load(tasks.get("countdown"), prompt_style="tiny", limit=16).samples
    prompts = [sample.question for sample in samples]
    with serving(tiny, defaults=settings) as live:

        def ask(prompt: str) -> str:
            answer = live.ask(prompt, model="tiny", task="countdown")
            return str(answer.json()["choices"][0]["text"])

        passes = live.service.metrics.forwards._value
        one_by_one, alone = timed(lambda: [ask(prompt) for prompt in prompts])
        before = passes.get()
        at_once, together = timed(lambda: list(live.pool.map(ask, prompts)))
        fewer = before / (passes.get() - before)
    assert together == alone
    with capsys.disabled():
        print(f"\n{name}: {fewer:.1f} times fewer passes, {one_by_one / at_once:.2f} times as fast")
    assert fewer >= LEAST_GAIN
