"""Whether two formulas are equal, by math-verify, bounded in time and safe in any thread.

One child process is started at the first question and kept; a question that takes too much time or
memory ends it, counts as "not equal", and the next question starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

# The child bounds its own processor time to 3 s (`math_worker.py`); this is for when it cannot.
SECONDS = 20.0
START_SECONDS = 60.0
MAX_LENGTH = 600

NOT_INSTALLED = (
    "math-verify is not installed, so formulas are compared by spelling only; "
    "run: pip install 's3dlm[math]'"
)


class _Child:
    """One running child and the thread that started it and reads its answers.

    The child is killed when the thread that started it ends, so that must not be a caller's thread:
    the reader lives exactly as long as the child.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        started: queue.SimpleQueue[subprocess.Popen[str] | OSError] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._start_and_read, args=(started,), daemon=True)
        self.reader.start()
        process = started.get()
        if isinstance(process, OSError):
            raise process
        self.process = process

    def _start_and_read(self, started: queue.SimpleQueue[subprocess.Popen[str] | OSError]) -> None:
        script = Path(__file__).with_name("math_worker.py")
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-u", str(script), str(self.owner)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        for line in process.stdout or ():
            self.lines.put(line)
        self.lines.put("")  # the child is gone

    def started(self) -> bool:
        return self.next_line(START_SECONDS) == "ready"

    def ask(self, gold: str, answer: str, seconds: float) -> bool | None:
        """True or False; None when the child did not answer in time or is gone."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, answer]) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            return None
        reply = self.next_line(seconds)
        return reply if isinstance(reply, bool) else None

    def next_line(self, seconds: float) -> object:
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        """End the child and its reader; a copy inherited by fork is left to its owner."""
        if self.owner != os.getpid():
            return
        self.process.kill()
        self.process.wait()
        self.reader.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()


class MathVerify:
    """Answers `equal(gold, answer)`; starts, restarts and closes its child by itself."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether math-verify shows the two to be equal within the time limit."""
        if max(len(gold), len(answer)) > MAX_LENGTH:
            return False
        with self._lock:
            child = self._running()
            reply = child.ask(gold, answer, self._seconds) if child else None
            if reply is None:
                self._close()
            return bool(reply)

    def close(self) -> None:
        """End the child process, if there is one; the next question starts another."""
        with self._lock:
            self._close()

    def _running(self) -> _Child | None:
        if self._child is not None and self._child.owner == os.getpid():
            return self._child
        child = _Child()
        if not child.started():
            child.close()
            return None
        self._child = child
        return child

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None


@lru_cache(maxsize=1)
def installed() -> bool:
    """Whether math-verify can be imported; it is not imported here."""
    return find_spec("math_verify") is not None


_shared = MathVerify()
atexit.register(_shared.close)
# A fork may happen while another thread holds the lock; the copy gets a fresh one.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _shared.__init__())  # type: ignore[misc]


def equal(gold: str, answer: str) -> bool:
    """Whether the shared child shows two formulas to be equal; False when it is not installed."""
    return installed() and _remembered(gold, answer)


@lru_cache(maxsize=4096)
def _remembered(gold: str, answer: str) -> bool:
    """Samples of one question repeat each other's answers."""
    return _shared.equal(gold, answer)
