"""What runs confined: candidates and judges. The only file that uses `exec` and `eval`.

A candidate loads untrusted code and answers calls. A judge runs tests and calls a candidate in
another process, so tested code can neither see the tests nor reach the verdict: all it can do is
answer with plain values.
"""

from __future__ import annotations

import builtins
import json
import os
import random
from itertools import islice

from s3dlm.extras.code.sandbox.values import Json, decode, encode

_LONGEST = 2**24  # characters of one message between judge and candidate
_ITEMS = 100_000


class ChannelClosed(BaseException):
    """The other side has ended; no `except Exception` of a test may take it for an error."""


class Channel:
    """Messages over a descriptor: one JSON value per line, by plain read and write."""

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
                raise ChannelClosed
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
                assert isinstance(request, list)
                self.channel.send({"value": getattr(self, f"do_{request[0]}")(*request[1:])})
            except BaseException as error:  # SystemExit and KeyboardInterrupt, too
                self.channel.send({"error": _describe(error)})

    def do_load(self, source: str) -> None:
        random.seed(0)  # the same draws every time: a verdict should not depend on luck
        exec(compile(source, "<candidate>", "exec"), self.names)

    def do_eval(self, expression: str) -> Json:
        return self._out(eval(compile(expression, "<example>", "eval"), self.names))

    def do_name(self, name: str) -> Json:
        return self._out(self.names[name])

    def do_call(self, target: Json, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """The result, and the arguments as the call left them."""
        values = [self._in(value) for value in args]
        named = {name: self._in(value) for name, value in kwargs.items()}
        result = self._in(target)(*values, **named)  # type: ignore[operator]
        return [self._out(result), [self._out(value) for value in values]]

    def do_get(self, target: Json, name: str) -> Json:
        return self._out(getattr(self._in(target), name))

    def do_set(self, target: Json, name: str, value: Json) -> None:
        setattr(self._in(target), name, self._in(value))

    def do_list(self, target: Json) -> Json:
        return self._out(list(islice(self._in(target), _ITEMS)))  # type: ignore[call-overload]

    def _out(self, value: object) -> Json:
        return encode(value, self._refer)

    def _in(self, data: Json) -> object:
        return decode(data, self.objects.__getitem__)

    def _refer(self, value: object) -> int:
        self.objects.append(value)
        return len(self.objects) - 1


def _describe(error: BaseException) -> list[Json]:
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


class RemoteObject:
    """In the judge: an object of the candidate. It can be called, read and listed; it equals nothing."""

    __slots__ = ("_client", "_ref")
    _client: Client
    _ref: int

    def __init__(self, client: Client, ref: int) -> None:
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "_ref", ref)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._client.call({"ref": self._ref}, args, kwargs)

    def __getattr__(self, name: str) -> object:
        return self._client.get("get", {"ref": self._ref}, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._client.ask("set", {"ref": self._ref}, name, self._client.out(value))

    def __iter__(self) -> object:
        return iter(self._client.get("list", {"ref": self._ref}))  # type: ignore[call-overload]


class Client:
    """In the judge: requests to the candidate, answered with plain values, references or errors."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def ask(self, *request: Json) -> Json:
        self.channel.send(list(request))
        reply = self.channel.receive()
        assert isinstance(reply, dict)
        if "error" in reply:
            raise _as_exception(reply["error"])
        return reply["value"]

    def get(self, *request: Json) -> object:
        return decode(self.ask(*request), lambda ref: RemoteObject(self, ref))

    def call(self, target: Json, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A call; what it changed in its arguments is changed here, too."""
        sent: list[Json] = [self.out(value) for value in args]
        named = {name: self.out(value) for name, value in kwargs.items()}
        reply = self.get("call", target, sent, named)
        assert isinstance(reply, list)
        result, changed = reply
        for value, before, after in zip(args, sent, changed, strict=True):
            if before != self.out(after):
                if isinstance(value, list) and isinstance(after, list):
                    value[:] = after
                elif isinstance(value, (set, dict)) and type(value) is type(after):
                    value.clear()
                    value.update(after)
        return result

    def out(self, value: object) -> Json:
        return encode(value, self._refer)

    def _refer(self, value: object) -> int:
        if not isinstance(value, RemoteObject):
            raise TypeError(f"a {type(value).__name__} cannot be given to the tested code")
        return value._ref


def _as_exception(error: Json) -> Exception:
    """An exception of the same built-in class: a test may expect one."""
    assert isinstance(error, list)
    kind = getattr(builtins, str(error[0]), None)
    # StopIteration would end a `map` of the tests in silence.
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not StopIteration:
        try:
            return kind(str(error[1]))
        except TypeError:  # UnicodeDecodeError and its like need more arguments
            pass
    return RuntimeError(f"{error[0]}: {error[1]}")


def run_tests(parent: Channel, candidate: Channel) -> None:
    """Run the tests of one program; only a test run that reaches its end is a pass."""
    request = parent.receive()
    assert isinstance(request, dict)
    client = Client(candidate)
    names: dict[str, object] = {"__name__": "tests"}
    try:
        client.ask("load", request["source"])
        random.seed(0)
        exec(compile(str(request["setup"]), "<setup>", "exec"), names)
        for name in request["remote"]:  # type: ignore[union-attr]
            names[str(name)] = client.get("name", name)
        exec(compile(str(request["tests"]), "<tests>", "exec"), names)
        client.ask("eval", "None")  # still there: its death was not taken for an exception
    except (ChannelClosed, BrokenPipeError):
        parent.send({"error": ["ended without an answer", "", 0]})
    except BaseException as error:
        parent.send({"error": _describe(error)})
    else:
        parent.send({"value": True})
