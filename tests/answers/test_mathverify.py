"""math-verify runs in a child: bounded in time, safe in any thread, gone at exit."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from s3dlm.answers import math_worker, mathverify
from s3dlm.answers.mathverify import MathVerify


@pytest.fixture(scope="module")
def child():
    verifier = MathVerify()
    yield verifier
    verifier.close()


def test_a_silent_child_is_ended_and_replaced(child, monkeypatch):
    child.equal("1", "1")
    silent = child.process
    with monkeypatch.context() as patch:
        patch.setattr(child, "next_line", lambda seconds: None)  # as after waiting in vain
        assert child.equal("x+1", "1+x") is False
    assert silent.poll() is not None
    assert child.equal("x+1", "1+x")
    assert child.process.pid != silent.pid


@pytest.mark.parametrize("text", ["", "\\", "{" * 50, "\x00", "\n\n", "é≠∑", "x" * 10**6])
def test_broken_formulas_are_not_equal_and_raise_nothing(child, text):
    assert child.equal("7", text) is False


# Each takes its three seconds of a processor, so most are left to the slow set.
MONSTERS = [
    "9^{9^{9^9}}",
    *(
        pytest.param(formula, marks=pytest.mark.slow)
        for formula in (r"\frac{9^{9^{9}}}{9^{9^{9}}}", "2^{2^{2^{2^{2^2}}}}", "(10^7)!")
    ),
]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the child's own clock")
@pytest.mark.parametrize("formula", MONSTERS)
def test_a_monstrous_formula_gets_its_three_seconds_and_no_more(formula):
    """Processor time of the child, not the clock on the wall: the machine may be busy."""
    verifier = MathVerify(seconds=200.0)  # the parent does not come to the rescue
    assert verifier.equal("x+1", "1+x")
    process = verifier.process
    before = _processor_seconds(process.pid)
    used = []
    ended = threading.Event()

    def watch():
        while not ended.wait(0.05) and process.poll() is None:
            used.append(_processor_seconds(process.pid) - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert verifier.equal("7", formula) is False
    ended.set()
    watcher.join()
    assert max(used, default=0.0) < math_worker.COMPARE_SECONDS + math_worker.GRACE + 1.5
    assert verifier.equal("x+1", "1+x")
    verifier.close()


def _status(pid):
    """The fields of a process from its state on; of one that is gone, those of a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z", *"0" * 20]


def _processor_seconds(pid):
    fields = _status(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _runs(pid):
    return _status(pid)[0] not in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the limit of another process")
def test_the_child_has_its_limit_of_memory(child):
    import resource

    assert child.equal("x+1", "1+x")
    limit = resource.prlimit(child.process.pid, resource.RLIMIT_AS)
    assert limit == (math_worker.WORKER_MEMORY, math_worker.WORKER_MEMORY)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's death")
def test_a_child_that_cannot_notice_ends_with_its_killed_parent():
    """Stopped, it reads no end of file and no timer runs: as in one endless operation on integers."""
    code = (
        "import time\n"
        "from s3dlm.answers.mathverify import MathVerify\n"
        "verifier = MathVerify()\n"
        "verifier.equal('1', '1')\n"
        "print(verifier.process.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    try:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        deadline = time.monotonic() + 900
        while _runs(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _runs(pid)
    finally:
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_child_outlives_the_thread_that_asked_first():
    verifier = MathVerify()
    thread = threading.Thread(target=verifier.equal, args=("x+1", "1+x"))
    thread.start()
    thread.join()
    pid = verifier.process.pid
    assert verifier.equal("x+1", "1+x")
    assert verifier.process.pid == pid
    verifier.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_fork_asks_a_child_of_its_own():
    code = (
        "import os\n"
        "from s3dlm.answers import mathverify as m\n"
        "m.equal('x+1', '1+x')\n"
        "first, fork = m._shared.process, os.fork()\n"
        "if fork == 0:\n"
        "    os._exit(0 if m._shared.equal('x+2', '2+x') and m._shared.process.pid != first.pid else 1)\n"
        "print(os.waitpid(fork, 0)[1], first.poll(), m._shared.equal('x+3', '3+x'))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "0 None True\n"


def test_the_process_ends_without_a_word():
    code = (
        "from s3dlm.answers.grading import grade\n"
        "import threading\n"
        "t = threading.Thread(target=lambda: print(grade('math500', r'\\boxed{x+1}', '1+x')))\n"
        "t.start(); t.join()\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("1.0\n", "", 0)


def test_without_math_verify_nothing_is_started(monkeypatch):
    monkeypatch.setattr(mathverify, "available", lambda: False)
    monkeypatch.setattr(mathverify, "_shared", None)
    assert mathverify.equal("x+1", "1+x") is False
