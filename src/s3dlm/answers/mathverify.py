"""Whether two formulas are equal, by math-verify, bounded in time and safe in any thread.

One child process is started at the first question and kept; a question that takes too much time or
memory ends it, counts as "not equal", and the next question starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

# The child bounds its own processor time to 3 s (`math_worker.py`); this is for when it cannot.
ANSWER_SECONDS = 20.0
START_SECONDS = 60.0
LONGEST_FORMULA = 600

NOT_INSTALLED = (
    "math-verify is not installed, so formulas are compared by spelling only; "
    "run: pip install 's3dlm[math]'"
)


class MathVerify:
    """Answers `equal(gold, answer)`; starts, restarts and closes its child process by itself."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self.process: subprocess.Popen[str] | None = None
        self._seconds = seconds
        self._lock = threading.RLock()
        # The child dies with the thread that started it, so that must not be a caller's thread.
        self._thread = ThreadPoolExecutor(1, "math-verify")

    def equal(self, gold: str, answer: str) -> bool:
        """Whether math-verify shows the two to be equal within the time limit."""
        if max(len(gold), len(answer)) > LONGEST_FORMULA:
            return False
        with self._lock:
            if self.process is None:
                self._start()
            reply = self._ask([gold, answer])
            if reply is None:
                self.close()
            return reply is True

    def _start(self) -> None:
        script = str(Path(__file__).with_name("math_worker.py"))
        self._thread = ThreadPoolExecutor(1, "math-verify")
        self.process = self._thread.submit(
            subprocess.Popen,
            [sys.executable, "-I", "-u", script, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        ).result()
        if self.next_line(START_SECONDS) != "ready":
            self.close()

    def _ask(self, question: list[str]) -> object:
        """True or False; None when the child does not answer in time or is gone."""
        if self.process is None or self.process.stdin is None:
            return None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            return self.next_line(self._seconds)
        except (OSError, ValueError):
            return None

    def next_line(self, seconds: float) -> object:
        """What the child says next; None when it says nothing in time or is gone."""
        assert self.process is not None
        assert self.process.stdout is not None
        try:
            line = self._thread.submit(self.process.stdout.readline).result(seconds)
        except TimeoutError:
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        """End the child process, if there is one; the next question starts another."""
        with self._lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                self._thread.shutdown()
                for pipe in (self.process.stdin, self.process.stdout):
                    with contextlib.suppress(OSError, ValueError):
                        if pipe is not None:
                            pipe.close()
            self.process = None


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether math-verify can be imported; it is not imported here."""
    return find_spec("math_verify") is not None


_shared = MathVerify()
# Samples of one question repeat each other's answers.
_remembered = lru_cache(maxsize=4096)(_shared.equal)
atexit.register(_shared.close)
# A fork may happen while another thread holds the lock, and the child process is its parent's: the copy
# starts anew.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _shared.__init__())  # type: ignore[misc]


def equal(gold: str, answer: str) -> bool:
    """Whether the shared child shows two formulas to be equal; False when it is not installed."""
    return available() and _remembered(gold, answer)
