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
from s3dlm.extras.code.sandbox.exchange import FINAL, CodeResult, Exchange, SandboxLimits

PROTECTIONS = {  # each is given by any one of these mechanisms
    "no network": ("namespaces", "seccomp"),
    "no other processes": ("namespaces", "seccomp"),
    "no writing and no reading of files": ("namespaces", "landlock"),
    "no dangerous system calls": ("seccomp",),
}
UNSAFE = "S3DLM_UNSAFE_CODE"
_START_SECONDS = 20.0
_MAIN = (
    "import sys; sys.path.append(sys.argv[3]); from s3dlm.extras.code.sandbox.launcher import launch; "
    "sys.path.pop(); launch(int(sys.argv[1]), sys.argv[2])"
)
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
        limits: SandboxLimits | None = None,
        *,
        allow_unprotected: bool = False,
        without: Collection[str] = (),
    ) -> None:
        self.limits = limits or SandboxLimits()
        self.allow_unprotected = allow_unprotected
        self.without = tuple(without)  # mechanisms not to use, as on a kernel without them
        self._lock = threading.Lock()
        self._launcher: _Launcher | None = None

    def missing(self) -> dict[str, str]:
        """Protections this machine does not offer, and why."""
        off = self._running().off
        return {
            name: "; ".join(f"{mechanism}: {off[mechanism]}" for mechanism in mechanisms)
            for name, mechanisms in PROTECTIONS.items()
            if all(mechanism in off for mechanism in mechanisms)
        }

    def evaluate(
        self, source: str, expressions: Sequence[str], seconds: float | None = None
    ) -> list[CodeResult]:
        """The values of expressions after a program has been loaded, in one process."""
        limit = self.limits.seconds
        near, far = socket.socketpair()
        with near, far, self._confined(b"c", far):
            exchange = Exchange(near, self.limits, min(seconds or limit, limit))
            results = [exchange.ask(["load", source])]
            for expression in expressions:
                if not results[0].ok or results[-1].error in FINAL:
                    results.append(results[-1])
                else:
                    results.append(exchange.ask(["eval", expression]))
        return results[1:]

    def test(
        self, source: str, tests: str, *, setup: str = "", remote: Sequence[str] = ()
    ) -> Verdict:
        """Run tests against a program; `remote` names what the tests use of it.

        `setup` and `tests` run in a second confined process and see the program's functions as
        stand-ins that copy plain values to and fro.
        """
        near, far = socket.socketpair()
        candidate, judge = socket.socketpair()
        with (
            near, far, candidate, judge,
            self._confined(b"c", candidate), self._confined(b"j", far, judge),
        ):  # fmt: skip
            exchange = Exchange(near, self.limits, self.limits.seconds)
            result = exchange.ask(
                {"source": source, "tests": tests, "setup": setup, "remote": list(remote)}
            )
        return Verdict(result.value is True, result.error)

    def close(self) -> None:
        """End the launcher; the next program starts another."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.close()
            self._launcher = None

    def _running(self) -> _Launcher:
        with self._lock:
            if self._launcher is not None and self._launcher.ended():
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
            listed = "; ".join(f"{name} ({why})" for name, why in missing.items())
            raise SandboxError(
                f"code is not run, because this machine does not offer: {listed}. Use Linux 5.13 or "
                "newer, where containers may use user namespaces or Landlock, or accept the risk "
                f"with s3dlm --unsafe-code COMMAND, with {UNSAFE}=1 in the environment, or with "
                "allow_unprotected=True in Python"
            )
        control, far = socket.socketpair()
        with control:
            with contextlib.ExitStack() as sent:
                fds = [sent.enter_context(end).fileno() for end in (far, *ends)]
                self._running().request(role, fds)
            control.settimeout(_START_SECONDS)
            try:
                state = control.recv(1000)
            except OSError as error:
                state = str(error).encode()
            if state != b"ready\n":
                why = state.decode(errors="replace").strip() or "it ended"
                raise SandboxError(f"a confined process did not start: {why}")
            try:
                yield
            finally:  # have the process ended, and wait until its supervisor has ended, too
                with contextlib.suppress(OSError):
                    control.shutdown(socket.SHUT_WR)
                    control.settimeout(_START_SECONDS)
                    while control.recv(1000):
                        pass


class _Launcher:
    """The process that forks confined ones; it is started once and holds no program's data."""

    def __init__(self, limits: SandboxLimits, without: Collection[str]) -> None:
        if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
            raise SandboxError(f"code cannot be run on {sys.platform}; use Linux 5.13 or newer")
        self.owner = os.getpid()
        self.requests, far = socket.socketpair()
        self.lock = threading.Lock()
        with far, tempfile.TemporaryDirectory(prefix="s3dlm-") as folder:
            options = json.dumps([asdict(limits), os.path.realpath(folder), list(without)])
            arguments = [str(far.fileno()), options, str(Path(__file__).parents[4])]
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-s", "-P", "-c", _MAIN, *arguments],
                pass_fds=[far.fileno()], env=_ENVIRONMENT, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            far.close()
            self.requests.settimeout(_START_SECONDS)
            try:
                with self.requests.makefile("r", encoding="utf-8") as lines:
                    self.off: dict[str, str] = json.loads(lines.readline(10_000))  # why, by name
            except (OSError, ValueError) as error:
                self.process.kill()
                _, stderr = self.process.communicate()
                self.requests.close()
                raise SandboxError(
                    f"the sandbox did not start ({error}): {stderr.decode(errors='replace')[-500:]}"
                ) from error

    def ended(self) -> bool:
        """Whether it has ended, or belongs to the process that this one was forked from."""
        return self.owner != os.getpid() or self.process.poll() is not None

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


# An environment variable reaches commands, servers and workers on other machines alike.
_shared = Sandbox(allow_unprotected=os.environ.get(UNSAFE) == "1")
# A fork may happen while another thread holds the lock; the copy gets a fresh sandbox.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: configure(_shared.limits, _shared.allow_unprotected))


def shared() -> Sandbox:
    """The sandbox of this process, started when first used."""
    return _shared


def configure(limits: SandboxLimits | None = None, allow_unprotected: bool = False) -> None:
    """Replace the shared sandbox; what runs in the old one runs on."""
    global _shared
    _shared = Sandbox(limits, allow_unprotected=allow_unprotected)
