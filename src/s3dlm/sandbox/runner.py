"""Running code that nobody has read: the parent's side of the sandbox.

`Sandbox.evaluate` gives the values of expressions in a program, `Sandbox.test` runs tests against
one. Both return in bounded time whatever the program does. If the kernel lacks a protection, the
sandbox says which one and does not run anything, unless `allow_unprotected` is set.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from s3dlm.errors import SandboxError
from s3dlm.sandbox.exchange import FINAL, Line, Outcome, outcome_of
from s3dlm.sandbox.limits import Limits

PROTECTIONS = {  # each is given by any one of these mechanisms
    "no network": ("namespaces", "seccomp"),
    "no other processes": ("namespaces", "seccomp"),
    "no writing and no reading of files": ("namespaces", "landlock"),
    "no dangerous system calls": ("seccomp",),
}
UNSAFE = "S3DLM_UNSAFE_CODE"
_START_SECONDS = 20.0
_MAIN = "import sys; sys.path.append(sys.argv[3]); from s3dlm.sandbox.launcher import launch; launch(int(sys.argv[1]), sys.argv[2])"
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a program passed its tests, and if not, why."""

    passed: bool
    reason: str = ""


class Sandbox:
    """Runs programs one by one, each in a confined process of its own; safe in any thread."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        allow_unprotected: bool = False,
        without: Collection[str] = (),
    ) -> None:
        self.limits = limits or Limits()
        self.allow_unprotected = allow_unprotected
        self.without = tuple(without)  # mechanisms not to use, as on a kernel without them
        self._lock = threading.Lock()
        self._launcher: _Launcher | None = None

    def missing(self) -> dict[str, str]:
        """Protections this machine does not offer, and why."""
        off = self._running().off
        return {
            name: "; ".join(f"{one}: {off[one]}" for one in ways)
            for name, ways in PROTECTIONS.items()
            if all(one in off for one in ways)
        }

    def evaluate(
        self, source: str, expressions: Sequence[str], seconds: float | None = None
    ) -> list[Outcome]:
        """The values of expressions after a program has been loaded, in one process."""
        most = self.limits.seconds
        near, far = socket.socketpair()
        with near, far, self._confined(b"c", far):
            line = Line(near, self.limits.output_bytes, min(seconds or most, most))
            outcomes = [line.ask(["load", source])]
            for expression in expressions:
                if not outcomes[0].ok or outcomes[-1].error in FINAL:
                    outcomes.append(outcomes[-1])
                else:
                    outcomes.append(line.ask(["eval", expression]))
        return outcomes[1:]

    def test(
        self, source: str, tests: str, *, setup: str = "", remote: Sequence[str] = ()
    ) -> Verdict:
        """Run tests against a program; `remote` names what the tests use of it.

        `setup` and `tests` run in a second confined process and see the program's functions as
        stand-ins that copy plain values to and fro.
        """
        near, far = socket.socketpair()
        one, other = socket.socketpair()
        with near, far, one, other, self._confined(b"c", one), self._confined(b"j", far, other):
            line = Line(near, self.limits.output_bytes, self.limits.seconds)
            reply = line.exchange(
                {"source": source, "tests": tests, "setup": setup, "remote": list(remote)}
            )
        if isinstance(reply, str):
            return Verdict(False, reply)
        if reply.get("passed") is True:
            return Verdict(True)
        return Verdict(False, outcome_of(reply).error)

    def close(self) -> None:
        """End the launcher; the next program starts another."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.close()
            self._launcher = None

    def _running(self) -> _Launcher:
        with self._lock:
            if self._launcher is not None and not self._launcher.alive():
                self._launcher.close()
                self._launcher = None
            if self._launcher is None:
                self._launcher = _Launcher(self.limits, self.without)
                weakref.finalize(self, self._launcher.close)  # also when the process ends
            return self._launcher

    @contextlib.contextmanager
    def _confined(self, role: bytes, *ends: socket.socket) -> Iterator[None]:
        """A confined process that holds these ends; on leaving, nothing of it is left."""
        if not self.allow_unprotected and (missing := self.missing()):
            raise SandboxError(_refusal(missing))
        leash, far = socket.socketpair()
        with leash:
            with contextlib.ExitStack() as given:
                fds = [given.enter_context(end).fileno() for end in (far, *ends)]
                self._running().request(role, fds)
            _await_ready(leash)
            try:
                yield
            finally:
                _let_go(leash)


class _Launcher:
    """The process that forks confined ones; it is started once and holds no program's data."""

    def __init__(self, limits: Limits, without: Collection[str]) -> None:
        if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
            raise SandboxError(f"code cannot be run on {sys.platform}; use Linux 5.13 or newer")
        self.owner = os.getpid()
        self.requests, far = socket.socketpair()
        self.lock = threading.Lock()
        with far, tempfile.TemporaryDirectory(prefix="s3dlm-") as folder:
            package = str(Path(__file__).parents[2])
            options = {
                "limits": asdict(limits), "folder": os.path.realpath(folder),
                "without": list(without), "package": package,
            }  # fmt: skip
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-s", "-P", "-c", _MAIN, str(far.fileno()), json.dumps(options), package],
                pass_fds=[far.fileno()], env=_ENVIRONMENT, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            far.close()
            self.off = self._hello()

    def _hello(self) -> dict[str, str]:
        """Which mechanisms are off, and why."""
        self.requests.settimeout(_START_SECONDS)
        try:
            with self.requests.makefile("r", encoding="utf-8") as lines:
                off: dict[str, str] = json.loads(lines.readline(10_000))
        except (OSError, ValueError) as error:
            self.process.kill()
            _, said = self.process.communicate()
            self.requests.close()
            raise SandboxError(
                f"the sandbox did not start ({error}): {said.decode(errors='replace')[-500:]}"
            ) from error
        return off

    def alive(self) -> bool:
        """Whether it is ours (not inherited by a fork) and still runs."""
        return self.owner == os.getpid() and self.process.poll() is None

    def request(self, role: bytes, fds: list[int]) -> None:
        try:
            with self.lock:
                socket.send_fds(self.requests, [role], fds)
        except OSError as error:
            raise SandboxError(f"the sandbox's launcher is gone: {error}") from error

    def close(self) -> None:
        """It ends when nobody can ask any more; a copy inherited by a fork is left alone."""
        self.requests.close()
        if self.owner != os.getpid():
            return
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


def _await_ready(leash: socket.socket) -> None:
    leash.settimeout(_START_SECONDS)
    try:
        said = leash.recv(1000)
    except OSError as error:
        said = str(error).encode()
    if said != b"ready\n":
        raise SandboxError(
            f"a confined process did not start: {said.decode(errors='replace').strip() or 'it ended'}"
        )


def _let_go(leash: socket.socket) -> None:
    """Have the process ended, and wait until its keeper says so by ending, too."""
    with contextlib.suppress(OSError):
        leash.shutdown(socket.SHUT_WR)
        leash.settimeout(_START_SECONDS)
        while leash.recv(1000):
            pass


def _refusal(missing: dict[str, str]) -> str:
    listed = "; ".join(f"{name} ({why})" for name, why in missing.items())
    return (
        f"code is not run, because this machine does not offer: {listed}. Use Linux 5.13 or newer, "
        "where containers may use user namespaces or Landlock, or accept the risk with "
        f"--unsafe-code, with {UNSAFE}=1 in the environment, or with allow_unprotected=True in Python"
    )


# An environment variable reaches commands, servers and workers on other machines alike.
_shared = Sandbox(allow_unprotected=os.environ.get(UNSAFE) == "1")
# A fork may happen while another thread holds the lock; the copy gets a fresh sandbox.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: configure(_shared.limits, _shared.allow_unprotected))


def shared() -> Sandbox:
    """The sandbox of this process, started when first used."""
    return _shared


def configure(limits: Limits | None = None, allow_unprotected: bool = False) -> None:
    """Replace the shared sandbox; what runs in the old one runs on."""
    global _shared
    _shared = Sandbox(limits, allow_unprotected=allow_unprotected)
