"""The child process that runs math-verify: a line of JSON in, a line of JSON out.

math-verify bounds its own time with SIGALRM, which only works in a main thread, and counts time in
which a busy machine does something else. Here it runs in the main thread of a process of its own,
bounded by the processor time that *it* uses, so that a verdict does not depend on the machine's load.
A single operation on huge integers (`9^{9^{9^9}}`) never returns to Python, where an exception could
end it: about a second later the kernel's limit of processor time ends the process itself. Memory is
bounded, too, and the process ends with its parent. Run as a script, by file name, so that it imports
neither the package nor anything the package needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import math
import os
import signal
import sys
import time
from typing import Any

try:
    import resource
except ImportError:  # not offered by this system
    resource = None  # type: ignore[assignment]

COMPARE_SECONDS = 3.0
GRACE = 0.5
WORKER_MEMORY = 1 << 30  # bytes of address space, several times what honest formulas need
PR_SET_PDEATHSIG = 1


class _TooLongError(Exception):
    """The processor time of one question is used up."""


def _too_long(number: int, frame: Any) -> None:
    raise _TooLongError


def _bound(seconds: float) -> None:
    """Raise after that much processor time, and end the process soon after; 0 lifts both bounds."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
    if resource is not None:  # whole seconds, of the process's user and system time together
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        ends = math.ceil(time.process_time() + seconds + GRACE) if seconds else most
        if most != resource.RLIM_INFINITY:
            ends = min(ends, most)
        resource.setrlimit(resource.RLIMIT_CPU, (ends, most))


def _equal(parse: Any, verify: Any, gold: str, answer: str) -> bool:
    _bound(COMPARE_SECONDS)
    try:
        left, right = (parse(f"${text}$", parsing_timeout=None) for text in (gold, answer))
        return bool(verify(left, right, timeout_seconds=None))
    except Exception:  # whatever it stumbles over, the answer is not shown to be equal
        return False
    finally:
        _bound(0)


def main() -> None:
    """Serve until the parent closes the pipe; the first line out says that all is loaded."""
    if sys.platform == "linux":  # be killed when the parent dies
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it is dead already
        return
    logging.disable(logging.CRITICAL)
    try:
        from math_verify import parse, verify
    except ImportError:
        print(json.dumps("missing"), flush=True)
        return
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, _too_long)
    _equal(parse, verify, "x+1", "1+x")  # loads what is only loaded when first used
    if resource is not None:
        # It may not be offered, or be bounded more tightly already.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY, WORKER_MEMORY))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        print(json.dumps(_equal(parse, verify, gold, answer)), flush=True)


if __name__ == "__main__":
    main()
