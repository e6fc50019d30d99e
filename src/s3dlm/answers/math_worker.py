"""The child process that runs math-verify: a line of JSON in, a line of JSON out.

math-verify bounds its own time with SIGALRM, which only works in a main thread, and counts time in
which a busy machine does something else. Here it runs in the main thread of a process of its own,
bounded by the processor time that *it* uses, so that a verdict does not depend on the machine's
load; and should a single big-number operation not heed the signal, the parent (`mathverify.py`)
ends the process. Run as a script, by file name, so that it imports neither the package nor
anything the package needs.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from typing import Any

SECONDS = 3.0


class _TooLongError(Exception):
    """The processor time of one question is used up."""


def _too_long(number: int, frame: Any) -> None:
    raise _TooLongError


def _bound(seconds: float) -> None:
    """Raise after so much processor time; 0 lifts the bound. Where there is no such timer, none."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _equal(parse: Any, verify: Any, gold: str, answer: str) -> bool:
    _bound(SECONDS)
    try:
        left, right = (parse(f"${text}$", parsing_timeout=None) for text in (gold, answer))
        return bool(verify(left, right, timeout_seconds=None))
    except Exception:  # whatever it stumbles over, the answer is not shown to be equal
        return False
    finally:
        _bound(0)


def main() -> None:
    """Serve until the parent closes the pipe; the first line out says that all is loaded."""
    logging.disable(logging.CRITICAL)
    try:
        from math_verify import parse, verify
    except ImportError:
        print(json.dumps("missing"), flush=True)
        return
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, _too_long)
    _equal(parse, verify, "x+1", "1+x")  # loads what is only loaded when first used
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        print(json.dumps(_equal(parse, verify, gold, answer)), flush=True)


if __name__ == "__main__":
    main()
