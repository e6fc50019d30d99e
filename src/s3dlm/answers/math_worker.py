"""The child process that runs math-verify: a line of JSON in, a line of JSON out.

math-verify bounds its own time with SIGALRM, which only works in a main thread, and not even there
while a single big-number operation runs. In a process of its own it has a main thread, and the
parent (`mathverify.py`) can end it whatever it is doing. Run as a script, by file name, so that it
imports neither the package nor anything the package needs.
"""

from __future__ import annotations

import json
import logging
import sys


def main() -> None:
    """Serve until the parent closes the pipe; the first line out says that imports are done."""
    logging.disable(logging.CRITICAL)
    try:
        from math_verify import parse, verify
    except ImportError:
        print(json.dumps("missing"), flush=True)
        return
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        try:
            equal = bool(verify(parse(f"${gold}$"), parse(f"${answer}$")))
        except Exception:  # whatever it stumbles over, the answer is not shown to be equal
            equal = False
        print(json.dumps(equal), flush=True)


if __name__ == "__main__":
    main()
