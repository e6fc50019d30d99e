"""Whatever a program does, it ends as failed, soon, and leaves nothing behind.

Every program runs with all mechanisms and again without each one that another stands in for, so that
a machine that lacks one is tested, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3dlm.extras.code.sandbox import Sandbox, SandboxLimits, Verdict
from tests.extras.code.hostile import LOOP, PROGRAMS

# Programs that never end get little time; the others get plenty, so that a busy machine does not
# turn what they really die of into "took too long". All who sleep do so for longer than SOON.
IMPATIENT, PATIENT = (
    SandboxLimits(seconds=0.25, memory_mb=256),
    SandboxLimits(seconds=600, memory_mb=256),
)
SOON = 900
MODES = {"all mechanisms": (), "no namespaces": ("namespaces",), "no landlock": ("landlock",)}
SECRET = "SECRET-4711"


@dataclass
class Attack:
    """All programs run in one mode: their verdicts, and what was to be seen afterwards."""

    verdicts: dict[str, Verdict]
    seconds: dict[str, float]
    files: list[str]
    victim: str
    connected: bool
    left: list[str]
    healthy: bool


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: mode.replace(" ", "-"))
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    sandboxes = [Sandbox(limits, without=MODES[request.param]) for limits in (IMPATIENT, PATIENT)]
    if missing := sandboxes[0].missing():
        pytest.skip(f"this machine does not offer {missing}")
    out = Path(tempfile.mkdtemp())
    out.chmod(0o777)
    (out / "victim").write_text("unharmed")
    (out / "victim").chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield run_all(*sandboxes, out, server)
    for sandbox in sandboxes:
        sandbox.close()
    shutil.rmtree(out)


def run_all(impatient: Sandbox, patient: Sandbox, out: Path, server: socket.socket) -> Attack:
    seconds = {}

    def run(name: str) -> Verdict:
        reason, source = PROGRAMS[name]
        sandbox = impatient if LOOP in reason else patient
        source = source.replace("{out}", str(out)).replace("{port}", str(server.getsockname()[1]))
        started = time.monotonic()
        verdict = sandbox.test(source, f"assert f(2) == {SECRET!r}", remote=["f"])
        seconds[name] = time.monotonic() - started
        return verdict

    with ThreadPoolExecutor(4) as pool:
        verdicts = dict(zip(PROGRAMS, pool.map(run, PROGRAMS), strict=True))
    try:
        connected = bool(server.accept())
    except BlockingIOError:
        connected = False
    return Attack(
        verdicts,
        seconds,
        sorted(path.name for path in out.iterdir()),
        (out / "victim").read_text(),
        connected,
        [*processes(impatient), *processes(patient)],
        patient.test("def f(x): return x", "assert f(2) == 2", remote=["f"]).passed,
    )


def processes(sandbox: Sandbox) -> list[str]:
    """All processes of a sandbox but its launcher; forks have its command line."""
    launcher = str(sandbox._running().process.pid)
    line = Path(f"/proc/{launcher}/cmdline").read_bytes()
    return [pid for pid in with_command_line(line) if pid != launcher]


def with_command_line(line: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (path / "cmdline").read_bytes() == line:
                found.append(path.name)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_fails(attack: Attack, name: str) -> None:
    verdict = attack.verdicts[name]
    assert not verdict.passed
    assert re.search(PROGRAMS[name][0], verdict.reason), verdict.reason
    assert attack.seconds[name] < SOON


def test_nothing_is_left_behind(attack: Attack) -> None:
    assert attack.left == []
    assert attack.files == ["victim"]
    assert attack.victim == "unharmed"
    assert not attack.connected
    assert not os.path.exists("/dev/shm/s3dlm-hostile")
    assert attack.healthy
