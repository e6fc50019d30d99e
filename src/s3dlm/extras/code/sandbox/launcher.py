"""The process that confines programs: started once, it forks a confined process per request.

It runs no untrusted code itself. For every request it forks a supervisor; the supervisor forks the
confined process, waits until that ends or the parent closes the control socket, and then ends it with
everything in it. If the parent dies, all control sockets are closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket

from s3dlm.extras.code.sandbox.child import Candidate, Channel, run_tests
from s3dlm.extras.code.sandbox.confine import Confinement
from s3dlm.extras.code.sandbox.exchange import SandboxLimits

# Loaded before the file system is out of reach: faster for all, and shared libraries need files.
_PRELOADED = (
    "abc", "array", "ast", "bisect", "calendar", "cmath", "collections.abc", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "math",
    "numbers", "operator", "queue", "random", "re", "resource", "statistics", "string", "textwrap", "threading",
    "time", "types", "typing", "unicodedata", "zlib",
)  # fmt: skip


def launch(request_fd: int, options: str) -> None:
    """Prepare the confinement, say what is missing, then serve requests until the parent is gone."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):  # not every platform has all
            importlib.import_module(name)
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # threads need it when they end
    requests = socket.socket(fileno=request_fd)
    devnull = os.open(os.devnull, os.O_RDWR)
    limits, folder, without = json.loads(options)
    confinement = Confinement(SandboxLimits(**limits), folder, without)
    requests.sendall(json.dumps(confinement.off).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    while True:
        role, fds, _, _ = socket.recv_fds(requests, 1, 3)
        if not role:
            return
        if os.fork() == 0:
            requests.close()
            _supervise(role, fds, confinement, devnull)
        for fd in fds:
            os.close(fd)


def _supervise(role: bytes, fds: list[int], confinement: Confinement, devnull: int) -> None:
    """Run one confined process, and leave nothing of it; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = fds[0]
    try:
        identity = os.getpid()
        confinement.new_processes()
        child = os.fork()
        if child == 0:
            _run_confined(role, fds, confinement, devnull, identity)
        for fd in fds[1:]:
            os.close(fd)
        # Where the kernel cannot tell that the child has ended, the parent notices and says so.
        ended = [os.pidfd_open(child)] if hasattr(os, "pidfd_open") else []
        select.select([control, *ended], [], [])
        for end in (os.killpg, os.kill):
            with contextlib.suppress(OSError):  # already gone, or not yet the leader of a group
                end(child, signal.SIGKILL)
        os.waitpid(child, 0)
    finally:
        os._exit(0)


def _run_confined(
    role: bytes, fds: list[int], confinement: Confinement, devnull: int, identity: int
) -> None:
    """Become a candidate or a judge; never returns."""
    control = fds[0]
    try:
        os.setsid()
        for fd in (0, 1, 2):
            os.dup2(devnull, fd)
        kept = {*fds, confinement.rules}
        for fd in set(range(3, max(*kept, devnull) + 1)) - kept:
            with contextlib.suppress(OSError):
                os.close(fd)
        confinement.enter(identity)
        os.write(control, b"ready\n")
    except BaseException as error:
        os.write(control, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os.close(control)
    try:
        if role == b"c":
            Candidate(Channel(fds[1])).serve()
        else:
            run_tests(Channel(fds[1]), Channel(fds[2]))
    finally:
        os._exit(0)
