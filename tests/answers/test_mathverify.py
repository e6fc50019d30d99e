"""math-verify runs in a child: bounded in time, safe in any thread, gone at exit."""

import subprocess
import sys
import threading
import time

import pytest

from s3dlm.answers import mathverify
from s3dlm.answers.mathverify import MathVerify


@pytest.fixture(scope="module")
def child():
    verifier = MathVerify(seconds=2.0)
    yield verifier
    verifier.close()


def test_equal_formulas(child):
    assert child.equal(r"\frac{\sqrt{3}}{3}", r"\sqrt{3}/3")
    assert not child.equal(r"\frac{\sqrt{3}}{3}", r"\sqrt{3}/2")


def test_it_works_outside_the_main_thread(child):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(child.equal("x+1", "1+x"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4


def test_the_child_is_started_once(child):
    child.equal("1", "1")
    first = child._child.process.pid
    child.equal("2", "2")
    assert child._child.process.pid == first


def test_a_hanging_child_is_ended_and_replaced(child):
    child.equal("1", "1")
    first = child._child.process
    start = time.monotonic()
    slow = MathVerify(seconds=1e-9)
    slow._child = child._child
    assert slow.equal("x+1", "1+x") is False  # no answer in time
    assert time.monotonic() - start < 5
    assert first.poll() is not None
    child._child = None
    assert child.equal("x+1", "1+x")
    assert child._child.process.pid != first.pid


def test_a_child_that_died_is_replaced(child):
    child.equal("1", "1")
    child._child.process.kill()
    child._child.process.wait()
    child.equal("x+1", "1+x")  # may be lost
    assert child.equal("x+1", "1+x")


@pytest.mark.parametrize(
    "text", ["", "\\", "{" * 50, "\x00", "9^{9^{9^{9}}}", "\n\n", "é≠∑", "x" * 10**6]
)
def test_broken_formulas_are_not_equal_and_raise_nothing(child, text):
    assert child.equal("7", text) is False


def test_an_inherited_copy_of_the_child_is_not_used(child, monkeypatch):
    child.equal("1", "1")
    inherited = child._child
    inherited.owner = -1  # as after a fork
    assert child.equal("x+1", "1+x")
    assert child._child is not inherited
    assert inherited.process.poll() is None  # its owner's to end
    inherited.owner = child._child.owner
    inherited.close()


def test_the_process_ends_without_a_word():
    code = (
        "from s3dlm.answers import grade\n"
        "import threading\n"
        "t = threading.Thread(target=lambda: print(grade('math500', r'\\boxed{x+1}', '1+x')))\n"
        "t.start(); t.join()\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("1.0\n", "", 0)


def test_without_math_verify_nothing_is_started(monkeypatch):
    monkeypatch.setattr(mathverify, "installed", lambda: False)
    monkeypatch.setattr(mathverify, "_Child", None)
    assert mathverify.equal("x+1", "1+x") is False
