"""Whatever a program does, it ends as failed, soon, and leaves nothing behind.

Every program runs with all mechanisms and again without each one that another stands in for, so that
a machine that lacks one is tested, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from s3dlm.extras.code.sandbox import Sandbox, SandboxLimits, Verdict
from tests.extras.code.hostile import LOOP, MODES, PROGRAMS, SECRET, Outside, outside

# Programs that never end get little time; the others get plenty, so that a busy machine does not
# turn what they really die of into "took too long". All who sleep do so for longer than SOON.
IMPATIENT, PATIENT = (
    SandboxLimits(seconds=0.25, memory_mb=256),
    SandboxLimits(seconds=600, memory_mb=256),
)
SOON = 900


@dataclass
class Attack:
    """All programs run in one mode: their verdicts, and what was to be seen afterwards."""

    verdicts: dict[str, Verdict]
    seconds: dict[str, float]
    harm: list[str]
    healthy: bool


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: mode.replace(" ", "-"))
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    sandboxes = [Sandbox(limits, without=MODES[request.param]) for limits in (IMPATIENT, PATIENT)]
    if missing := sandboxes[0].missing():
        pytest.skip(f"this machine does not offer {missing}")
    with outside() as target:
        yield run_all(*sandboxes, target)
    for sandbox in sandboxes:
        sandbox.close()


def run_all(impatient: Sandbox, patient: Sandbox, target: Outside) -> Attack:
    seconds = {}

    def run(name: str) -> Verdict:
        reason, source = PROGRAMS[name]
        sandbox, source = impatient if LOOP in reason else patient, target.aimed(source)
        started = time.monotonic()
        verdict = sandbox.test(source, f"assert f(2) == {SECRET!r}", remote=["f"])
        seconds[name] = time.monotonic() - started
        return verdict

    with ThreadPoolExecutor(4) as pool:
        verdicts = dict(zip(PROGRAMS, pool.map(run, PROGRAMS), strict=True))
    healthy = patient.test("def f(x): return x", "assert f(2) == 2", remote=["f"]).passed
    return Attack(verdicts, seconds, target.harm(impatient, patient), healthy)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_fails(attack: Attack, name: str) -> None:
    verdict = attack.verdicts[name]
    assert not verdict.passed
    assert re.search(PROGRAMS[name][0], verdict.reason), verdict.reason
    assert attack.seconds[name] < SOON


def test_nothing_is_left_behind(attack: Attack) -> None:
    assert attack.harm == []
    assert attack.healthy
