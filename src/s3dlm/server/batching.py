"""A batcher for the server: verifiers that nobody waits for.

The bundled verifiers take linear time and run in the engine's thread. A registered verifier is foreign code: it
runs in a thread of its own while the other searches continue, and is abandoned if it does not
return. So does a verifier that takes many texts at once (a reward model, a judge, code): one call has
the texts of all searches that wait for it; those that come meanwhile share the next. Python cannot end a thread, so the number of such threads, hung ones included, is bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from s3dlm.engine import Batcher, Result, advance
from s3dlm.errors import S3dlmError, VerifierError
from s3dlm.jobs import Running
from s3dlm.models.base import Model
from s3dlm.models.forward import Prediction
from s3dlm.search.score import Unscored
from s3dlm.search.step import Step
from s3dlm.search.verify import verify
from s3dlm.server.reporting import ApiError, as_api_error, log

Event = Step | Result | Exception
SHARES_PER_BATCH = 8


class Demand(NamedTuple):
    """A search that is ready for a forward pass."""

    key: int
    client: str
    request: int
    size: int  # canvases

    @property
    def flow(self) -> tuple[str, int]:
        return self.client, self.request


class FairShare:
    """Who takes part in the next forward pass when not all searches fit into it.

    Fair queueing in two levels: clients share the passes equally, and so do the requests of a client;
    the searches of one request go in order. Cost is counted in canvases. A request that is more than
    `quantum` canvases ahead waits for the others, so that a small request does not wait for wide ones.
    """

    def __init__(self, batch: int) -> None:
        self.batch, self.quantum = batch, max(1, batch // SHARES_PER_BATCH)
        self._served: dict[Hashable, int] = {}  # canvases, by client and by (client, request)

    def choose(self, demands: Sequence[Demand]) -> list[int]:
        """Keys of the searches in the next pass: all that fit, those served least first."""
        served = self._served
        if sum(demand.size for demand in demands) <= self.batch:
            served.clear()  # nobody has to wait, so nobody is owed anything
            return [demand.key for demand in demands]
        clients = {demand.client for demand in demands}
        least = self._enter(clients)
        least_of = {
            client: self._enter({demand.flow for demand in demands if demand.client == client})
            for client in clients
        }
        chosen, room, left = list[int](), self.batch, list(demands)
        while left:
            first = min(left, key=lambda each: (served[each.client], served[each.flow], each.key))
            left.remove(first)
            ahead = max(served[first.client] - least, served[first.flow] - least_of[first.client])
            if chosen and (ahead > self.quantum or first.size > room):
                continue
            chosen.append(first.key)
            room -= first.size
            served[first.client] += first.size
            served[first.flow] += first.size
        return chosen

    def _enter(self, flows: Iterable[Hashable]) -> int:
        """Let newcomers start level with whoever was served least; returns that level."""
        flows = set(flows)
        least = min((self._served[flow] for flow in flows if flow in self._served), default=0)
        for flow in flows:
            self._served.setdefault(flow, least)
        return least

    def keep(self, running: Iterable[tuple[str, int]]) -> None:
        """Forget everyone but the clients and requests that still run."""
        alive: set[Hashable] = {name for flow in running for name in (flow, flow[0])}
        self._served = {flow: served for flow, served in self._served.items() if flow in alive}


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
            group = ("alone", key) if verifier.compares_texts else id(verifier)
            found.setdefault(group, []).append(key)
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
        if one.job.verifier is not None and not one.scorer.verifier.batched:
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
            message = f"{stuck} calls of registered verifiers hang; requests without `verifier` still work"
            error = ApiError(503, message, code="verifier_stuck")
            events.extend((key, error) for key in waiting)
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
            log("search failed", level=logging.ERROR, with_traceback=True)
            events.append(as_api_error(error))
        else:
            failure = VerifierError(f"the verifier raised {type(error).__name__}")
            failure.__cause__ = error
            events.append(failure)
    return events
