"""A batcher for the server: searches prepared elsewhere, and verifiers that nobody waits for.

Tokenising a prompt may take long, so it happens in threads of its own, once per request. The bundled
verifiers take linear time and run in the engine's thread. A registered verifier is foreign code: it
runs in a thread of its own while the other searches continue, and is abandoned if it does not
return. So does a verifier that takes many texts at once (a reward model, a judge, code): one call has
the texts of all searches that wait for it; those that come meanwhile share the next. Python cannot end a thread, so the number of such threads, hung ones included, is bounded.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s3dlm.engine import Batcher, Result, advance
from s3dlm.errors import S3dlmError, VerifierError
from s3dlm.jobs import Running, prepare
from s3dlm.models.base import Model, Tokenizer
from s3dlm.models.forward import Prediction
from s3dlm.search.score import Unscored
from s3dlm.search.step import Step
from s3dlm.search.verify import verify
from s3dlm.server.errors import internal, verifiers_stuck
from s3dlm.server.telemetry import log

Event = Step | Result | Exception
TOKENIZER_THREADS = 2  # one slow prompt does not hold up the next


@dataclass(frozen=True, slots=True)
class VerifierCall:
    """A verifier at work in its own thread, for one search or for several."""

    thread: threading.Thread
    since: float
    group: object = None  # the verifier, while it works for all who wait for it


class ServerBatcher(Batcher):
    """A batcher whose searches may wait for a registered verifier."""

    def __init__(self, model: Model, wake: Callable[[], None], most_calls: int) -> None:
        super().__init__(model)
        self.calls: dict[int, VerifierCall] = {}
        self.most_calls = most_calls
        self._wake = wake
        self._ready: deque[tuple[int, Running, list[Prediction]]] = deque()
        self._returned: deque[Callable[[], list[tuple[int, Event]]]] = deque()
        self._abandoned: list[threading.Thread] = []

    @property
    def stuck(self) -> int:
        """Abandoned verifier calls that are still alive."""
        return sum(thread.is_alive() for thread in self._abandoned)

    @property
    def has_news(self) -> bool:
        """Whether `collect` would change anything."""
        may_start = self._may_start() or self.stuck >= self.most_calls
        return bool(self._returned or (may_start and (self._ready or self._unscored())))

    def _may_start(self) -> bool:
        threads = {call.thread for call in self.calls.values()}
        return self.stuck + len(threads) < self.most_calls

    def _unscored(self) -> dict[object, list[int]]:
        """Searches that wait for a verifier which is not at work, by verifier. One that compares texts
        works for each search by itself."""
        busy = {call.group for call in self.calls.values()}
        found: dict[object, list[int]] = {}
        for key, one in self.running.items():
            if key in self.calls or not one.unscored:
                continue
            verifier = one.scorer.verifier
            alone = getattr(verifier, "compares_texts", False)
            found.setdefault(("alone", key) if alone else id(verifier), []).append(key)
        return {group: keys for group, keys in found.items() if group not in busy}

    def sizes(self) -> dict[int, int]:
        """Canvases of every search that is ready for a forward pass."""
        return {
            key: sum(len(rows.canvas) for rows in one.asked)
            for key, one in self.running.items()
            # A thread may set `asked` before it returns.
            if one.asked and not one.unscored and key not in self.calls
        }

    def _advance(
        self, key: int, one: Running, predictions: list[Prediction]
    ) -> Iterator[Step | Result | S3dlmError]:
        if one.job.verifier is not None and one.scorer.batched is None:
            one.asked = None
            self._ready.append((key, one, predictions))
            return
        yield from _events(one, predictions)  # type: ignore[misc]
        if one.asked is None:
            del self.running[key]

    def collect(self) -> list[tuple[int, Event]]:
        """Events of searches whose verifier has returned; starts the calls that wait."""
        events: list[tuple[int, Event]] = []
        while self._returned:
            events.extend(self._returned.popleft()())
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        stuck = self.stuck
        if stuck >= self.most_calls:
            waiting = [key for keys in self._unscored().values() for key in keys]
            waiting += [key for key, _, _ in self._ready]
            events.extend((key, verifiers_stuck(stuck)) for key in waiting)
            self._ready.clear()
            return events
        while self._ready and self._may_start():
            self._call_verifier(*self._ready.popleft())
        for group, keys in self._unscored().items():
            if self._may_start():
                self._verify_together(group, keys)
        return events

    def _call_verifier(self, key: int, one: Running, predictions: list[Prediction]) -> None:
        def work() -> Callable[[], list[tuple[int, Event]]]:
            told = _events(one, predictions)
            return lambda: self._told(key, told)

        self._start_call([key], work)

    def _told(self, key: int, told: list[Event]) -> list[tuple[int, Event]]:
        if self.calls.pop(key, None) is None:
            return []  # cancelled meanwhile
        if self.running[key].asked is None:
            del self.running[key]
        return [(key, event) for event in told]

    def _verify_together(self, group: object, keys: list[int]) -> None:
        requests = {key: self.running[key].unscored for key in keys}

        def work() -> Callable[[], list[tuple[int, Event]]]:
            errors = _verify([request for some in requests.values() for request in some])
            own = iter(errors)
            failed = {key: [next(own) for _ in some] for key, some in requests.items()}
            return lambda: self._verified(failed)

        self._start_call(keys, work, group)

    def _verified(self, failed: dict[int, list[VerifierError | None]]) -> list[tuple[int, Event]]:
        """Continue the searches of a call, without those that were cancelled meanwhile."""
        there = {k: errors for k, errors in failed.items() if self.calls.pop(k, None) is not None}
        held = {key: self.running[key] for key in there}
        return [*self._scored(held, [error for errors in there.values() for error in errors])]

    def _start_call(
        self,
        keys: list[int],
        work: Callable[[], Callable[[], list[tuple[int, Event]]]],
        group: object = None,
    ) -> None:
        def run() -> None:
            self._returned.append(work())
            self._wake()

        thread = threading.Thread(target=run, name=f"verifier-{keys[0]}", daemon=True)
        call = VerifierCall(thread, time.monotonic(), group)
        self.calls |= dict.fromkeys(keys, call)
        thread.start()

    def remove(self, key: int) -> None:
        self._ready = deque(one for one in self._ready if one[0] != key)
        call = self.calls.pop(key, None)
        if call is None:
            super().remove(key)
            return
        del self.running[
            key
        ]  # its generator may be running in the thread and cannot be closed here
        if all(other.thread is not call.thread for other in self.calls.values()):
            self._abandoned.append(call.thread)


def _verify(requests: list[Unscored]) -> list[VerifierError | None]:
    """As `verify`, also for what is no `Exception`: SystemExit in a verifier."""
    try:
        return verify(requests)
    except BaseException as error:
        failure = VerifierError(f"the verifier raised {type(error).__name__}")
        failure.__cause__ = error
        return [failure] * len(requests)


def _events(one: Running, predictions: list[Prediction]) -> list[Event]:
    """Events of a search; whatever is raised ends this search only, also what is no `Exception`:
    SystemExit in a verifier, a panic of the tokenizer."""
    events: list[Event] = []
    try:
        events.extend(advance(one, predictions))
    except BaseException as error:
        one.asked = None
        if one.job.verifier is None:
            log("search failed", level=40, with_traceback=True)
            events.append(internal())
        else:
            failure = VerifierError(f"the verifier raised {type(error).__name__}")
            failure.__cause__ = error
            events.append(failure)
    return events


class Preparation(threading.Thread):
    """A thread that turns jobs into searches: prompts are checked and tokenised here.

    Takes the searches of one request at a time; each has `job`, `cancelled` and `prepared`.
    """

    def __init__(
        self, model: Model, requests: queue.SimpleQueue[Sequence[Any]], wake: Callable[[], None]
    ) -> None:
        super().__init__(name="tokenizer", daemon=True)
        self.model, self.requests, self.wake = model, requests, wake

    def run(self) -> None:
        while tickets := self.requests.get():  # an empty request ends the thread
            model = replace(self.model, tokenizer=tokenise_once(self.model.tokenizer))
            for ticket in tickets:
                if not ticket.cancelled:
                    ticket.prepared = _prepared(model, ticket.job)
            self.wake()


def _prepared(model: Model, job: Any) -> Running | Exception:
    try:
        return prepare(model, job)
    except S3dlmError as error:
        return error
    except BaseException:  # the tokenizer is not Python: its panics are no `Exception`
        log("preparation failed", level=40, with_traceback=True)
        return internal()


def tokenise_once(inner: Tokenizer) -> Tokenizer:
    """A tokenizer for one request, whose choices all have the same prompt."""
    known: dict[object, list[int]] = {}

    class Once:
        encode, decode = inner.encode, inner.decode

        def chat(self, user: str, prefill: str = "") -> list[int]:
            key = (user, prefill)
            if key not in known:
                known[key] = inner.chat(user, prefill)
            return known[key]

    class OnceConversational(Once):
        def converse(self, turns: Sequence[Any], prefill: str = "") -> list[int]:
            key = (tuple(turns), prefill)
            if key not in known:
                known[key] = inner.converse(turns, prefill)  # type: ignore[attr-defined]
            return known[key]

    return OnceConversational() if hasattr(inner, "converse") else Once()
