"""What runs behind the wall, and the launcher that puts it there. The only file that uses `exec`.

The launcher is started once, by `runner.py`, and knows nothing of any program. For every request it
forks a keeper; the keeper forks the confined process, waits until that ends or the parent lets go of
the leash, and then ends it with everything in it. The confined process is either a candidate (it
loads untrusted code and answers calls) or a judge (it runs tests and calls a candidate in another
process). Tests and tested code never share a process, so tested code can neither see the tests
nor reach the verdict.
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
from itertools import islice

from s3dlm.sandbox.confine import Walls
from s3dlm.sandbox.limits import Limits
from s3dlm.sandbox.values import Json, decode, encode

# Loaded before the walls go up: faster for all, and their shared libraries are out of reach later.
_PRELOADED = (
    "abc", "array", "ast", "bisect", "calendar", "cmath", "collections.abc", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "math",
    "numbers", "operator", "queue", "random", "re", "resource", "statistics", "string", "textwrap", "threading",
    "time", "types", "typing", "unicodedata", "zlib",
)  # fmt: skip
_LONGEST = 2**24  # characters of one message between judge and candidate
_ITEMS = 100_000


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


class Channel:
    """Messages over a descriptor: one JSON value a line, by plain read and write."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rest = b""

    def send(self, message: Json) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]

    def receive(self) -> Json:
        while b"\n" not in self.rest:
            more = os.read(self.fd, 65536)
            if not more or len(self.rest) > _LONGEST:
                raise EOFError("the other side is gone")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        message: Json = json.loads(line)
        return message


class Candidate:
    """Loads the tested code and answers what is asked of it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.names: dict[str, object] = {"__name__": "candidate"}
        self.objects: list[object] = []

    def serve(self) -> None:
        while True:
            request = self.channel.receive()
            try:
                reply: Json = {"value": getattr(self, "do_" + request[0])(*request[1:])}  # type: ignore[index, operator]
                line = json.dumps(reply)
            except BaseException as error:
                line = json.dumps({"error": _described(error)})
            self.channel.send(json.loads(line))

    def do_load(self, source: str) -> Json:
        _seed(source)
        exec(compile(source, "<candidate>", "exec"), self.names)
        return None

    def do_eval(self, expression: str) -> Json:
        return self._out(eval(compile(expression, "<example>", "eval"), self.names))

    def do_name(self, name: str) -> Json:
        return self._out(self.names[name])

    def do_call(self, target: Json, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """The result, and the arguments as the call left them."""
        given = [self._in(value) for value in args]
        named = {name: self._in(value) for name, value in kwargs.items()}
        result = self._in(target)(*given, **named)  # type: ignore[operator]
        return [self._out(result), [self._out(value) for value in given]]

    def do_get(self, target: Json, name: str) -> Json:
        return self._out(getattr(self._in(target), name))

    def do_set(self, target: Json, name: str, value: Json) -> Json:
        setattr(self._in(target), name, self._in(value))
        return None

    def do_list(self, target: Json) -> Json:
        return self._out(list(islice(self._in(target), _ITEMS)))  # type: ignore[call-overload]

    def _out(self, value: object) -> Json:
        return encode(value, self._refer)

    def _in(self, data: Json) -> object:
        return decode(data, self.objects.__getitem__)

    def _refer(self, value: object) -> int:
        self.objects.append(value)
        return len(self.objects) - 1


def _seed(source: str) -> None:
    """The same draws every time: a verdict should not depend on luck."""
    if "random" in source:
        import random

        random.seed(0)


def _described(error: BaseException) -> list[Json]:
    """Type, message, and the line of the tested code where it happened (0: elsewhere)."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<candidate>":
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        message = str(error)[:300]
    except BaseException:
        message = ""
    return [type(error).__name__, message, line]


class Remote:
    """In the judge: an object of the candidate. It can be called, read and listed; it equals nothing."""

    __slots__ = ("_ask", "_ref")
    _ask: Asker
    _ref: int

    def __init__(self, ask: Asker, ref: int) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_ref", ref)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._ask.call({"ref": self._ref}, args, kwargs)

    def __getattr__(self, name: str) -> object:
        return self._ask("get", {"ref": self._ref}, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._ask("set", {"ref": self._ref}, name, self._ask.out(value))

    def __iter__(self) -> object:
        return iter(self._ask("list", {"ref": self._ref}))  # type: ignore[call-overload]


class Asker:
    """In the judge: questions to the candidate, answered with plain values, references or errors."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def __call__(self, *request: Json) -> object:
        return self._in(self.raw(*request))

    def raw(self, *request: Json) -> Json:
        self.channel.send(list(request))
        reply = self.channel.receive()
        assert isinstance(reply, dict)
        if "error" in reply:
            raise _as_exception(reply["error"])
        return reply["value"]

    def call(self, target: Json, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A call; what it changed in its arguments is changed here, too."""
        sent: list[Json] = [self.out(value) for value in args]
        named = {name: self.out(value) for name, value in kwargs.items()}
        reply = self.raw("call", target, sent, named)
        assert isinstance(reply, list)
        result, left = reply
        assert isinstance(left, list)
        for value, before, after in zip(args, sent, left, strict=True):
            if before != after:
                _overwrite(value, self._in(after))
        return self._in(result)

    def out(self, value: object) -> Json:
        return encode(value, self._refer)

    def _in(self, data: Json) -> object:
        return decode(data, lambda ref: Remote(self, ref))

    def _refer(self, value: object) -> int:
        if not isinstance(value, Remote):
            raise TypeError(f"a {type(value).__name__} cannot be given to the tested code")
        return value._ref


def _overwrite(value: object, new: object) -> None:
    if isinstance(value, list) and isinstance(new, list):
        value[:] = new
    elif isinstance(value, (set, dict)) and type(value) is type(new):
        value.clear()
        value.update(new)  # type: ignore[arg-type]


def _as_exception(error: Json) -> Exception:
    """An exception of the same built-in class: a test may expect one."""
    import builtins

    assert isinstance(error, list)
    kind = getattr(builtins, str(error[0]), None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(str(error[1]))
        except TypeError:  # UnicodeDecodeError and its like need more arguments
            pass
    return RuntimeError(f"{error[0]}: {error[1]}")


def judge(parent: Channel, candidate: Channel) -> None:
    """Run the tests of one program; only a test run that reaches its end is a pass."""
    request = parent.receive()
    assert isinstance(request, dict)
    ask = Asker(candidate)
    names: dict[str, object] = {"__name__": "tests"}
    try:
        ask.raw("load", request["source"])
        _seed(str(request["tests"]))
        exec(compile(str(request["setup"]), "<setup>", "exec"), names)
        for name in request["remote"]:  # type: ignore[union-attr]
            names[str(name)] = ask("name", name)
        exec(compile(str(request["tests"]), "<tests>", "exec"), names)
    except BaseException as error:
        parent.send({"passed": False, "error": _described(error)})
        return
    parent.send({"passed": True})
