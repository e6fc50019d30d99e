"""The process that puts programs behind the walls: started once, it forks confined processes.

It runs no untrusted code itself. For every request it forks a keeper; the keeper forks the confined
process, waits until that ends or the parent lets go of the leash, and then ends it with everything
in it. If the parent dies, all leashes are let go.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys

from s3dlm.sandbox.child import Candidate, Channel, judge
from s3dlm.sandbox.confine import Walls
from s3dlm.sandbox.limits import Limits

# Loaded before the walls go up: faster for all, and their shared libraries are out of reach later.
_PRELOADED = (
    "abc", "array", "ast", "bisect", "calendar", "cmath", "collections.abc", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "math",
    "numbers", "operator", "queue", "random", "re", "resource", "statistics", "string", "textwrap", "threading",
    "time", "types", "typing", "unicodedata", "zlib",
)  # fmt: skip


def launch(request_fd: int, config: str) -> None:
    """Build the walls, say which are missing, then serve requests until the parent is gone."""
    options = json.loads(config)
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):  # not every platform has all
            importlib.import_module(name)
    _preload_libgcc()
    sys.path[:] = [path for path in sys.path if path != options["package"]]
    requests = socket.socket(fileno=request_fd)
    devnull = os.open(os.devnull, os.O_RDWR)
    walls = Walls.build(Limits(**options["limits"]), options["folder"], options["without"])
    requests.sendall(json.dumps(walls.off).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    while True:
        role, fds, _, _ = socket.recv_fds(requests, 1, 3)
        if not role:
            return
        if os.fork() == 0:
            requests.close()
            _keep(role, fds, walls, devnull)
        for fd in fds:
            os.close(fd)


def _preload_libgcc() -> None:
    """Threads need it when they end, and it cannot be found once the root is gone."""
    import ctypes

    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")


def _keep(role: bytes, fds: list[int], walls: Walls, devnull: int) -> None:
    """Run one confined process, and see to its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    leash = fds[0]
    try:
        identity = os.getpid()
        walls.new_processes()
        child = os.fork()
        if child == 0:
            _confined(role, fds, walls, devnull, identity)
        for fd in fds[1:]:
            os.close(fd)
        _wait(leash, child)
    finally:
        os._exit(0)


def _wait(leash: int, child: int) -> None:
    """Until the child has ended or the leash is let go; then nothing of the child is left."""
    if hasattr(os, "pidfd_open"):
        ended = os.pidfd_open(child)
        select.select([leash, ended], [], [])
    else:
        while not select.select([leash], [], [], 0.05)[0] and not os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            pass
    for end in (os.killpg, os.kill):
        with contextlib.suppress(OSError):  # already gone, or not yet the leader of a group
            end(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _confined(role: bytes, fds: list[int], walls: Walls, devnull: int, identity: int) -> None:
    """Become a candidate or a judge; never returns."""
    leash = fds[0]
    try:
        os.setsid()
        for fd in (0, 1, 2):
            os.dup2(devnull, fd)
        _close_all_but({*fds, walls.rules}, max(*fds, walls.rules, devnull))
        walls.enter(identity)
        os.write(leash, b"ready\n")
    except BaseException as error:
        os.write(leash, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os.close(leash)
    try:
        if role == b"c":
            Candidate(Channel(fds[1])).serve()
        else:
            judge(Channel(fds[1]), Channel(fds[2]))
    finally:
        os._exit(0)


def _close_all_but(kept: set[int], highest: int) -> None:
    for fd in range(3, highest + 1):
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)
