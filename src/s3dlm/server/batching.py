"""A batcher for the server: verifiers that nobody waits for.

The bundled verifiers take linear time and run in the engine's thread, unless a step has many texts. A
registered verifier is foreign code: it runs in a thread of its own while the other searches continue,
and is abandoned if it does not return. So does a verifier that takes many texts at once (a reward
model, a judge, code): one call has the texts of all searches that wait for it; those that come
meanwhile share the next. Python cannot end a thread: an abandoned call ends before its next text, and
the number of threads of each verifier, hung ones included, is bounded.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from s3dlm.engine import Batcher, Event
from s3dlm.errors import VerifierError
from s3dlm.job import Running
from s3dlm.models.base import Model
from s3dlm.models.packing import Prediction, Rows
from s3dlm.search.particles import PORTION, Request
from s3dlm.search.score import Scored, Verify, is_for_verifier
from s3dlm.server.limits import Limits, share
from s3dlm.server.reporting import ApiError, as_api_error, log
from s3dlm.verifier.base import wanted

SHARES_PER_BATCH = 8
ENDING_SECONDS = 2.0  # for one text, such as a program: what is abandoned for longer hangs
IDLE_SECONDS, PLACE_SECONDS = 60.0, 0.1  # longest waits without anything to do, and for a place


class Demand(NamedTuple):
    """A search that is ready for a forward pass."""

    key: int
    flow: tuple[str, int]  # client and request
    size: int  # canvases


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
        flows = {demand.flow for demand in demands}
        clients = {client for client, _ in flows}
        least = self._enter(clients)
        least_of = {own: self._enter({flow for flow in flows if flow[0] == own}) for own in clients}
        chosen, room, left = list[int](), self.batch, list(demands)
        while left:
            first = min(left, key=lambda each: (served[each.flow[0]], served[each.flow], each.key))
            left.remove(first)
            client, flow = first.flow[0], first.flow
            ahead = max(served[client] - least, served[flow] - least_of[client])
            if chosen and (ahead > self.quantum or first.size > room):
                continue
            chosen.append(first.key)
            room -= first.size
            served[client] += first.size
            served[flow] += first.size
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


@dataclass(slots=True, eq=False)
class VerifierCall:
    """A verifier at work in its own thread, for one search or for several."""

    requests: Mapping[int, Verify]  # by search
    group: object  # the verifier, while it works for all who wait for it
    pool: str  # whose threads are counted together
    client: str  # of the first of its searches
    since: float = field(default_factory=time.monotonic)
    replies: Sequence[Scored] | None = None  # None: it is at work


@dataclass(slots=True)
class Portions(Request[Any]):
    """A request for more canvases than a pass has, forwarded in portions; the search is sent all."""

    whole: Request[Any]
    most: int  # canvases of a portion
    done: list[list[Prediction]] = field(init=False)  # of each of the request's rows, its parts
    left: list[tuple[int, Rows]] = field(init=False)

    def __post_init__(self) -> None:
        self.done = [[] for _ in self.whole.forwards]
        self.left = [
            (index, rows.take(slice(first, first + self.most)))
            for index, rows in enumerate(self.whole.forwards)
            for first in range(0, len(rows.canvas), self.most)
        ]

    @property
    def forwards(self) -> list[Rows]:
        """The next portion."""
        ends = itertools.accumulate(len(rows.canvas) for _, rows in self.left)
        return [rows for (_, rows), end in zip(self.left, ends, strict=True) if end <= self.most]

    def reply(self, predictions: Sequence[Prediction]) -> Any:
        """What the search is sent, or None while something is left."""
        for (index, _), prediction in zip(self.left, predictions, strict=False):
            self.done[index].append(prediction)
        del self.left[: len(predictions)]
        return None if self.left else self.whole.reply([Prediction.join(x) for x in self.done])


class ServerBatcher(Batcher):
    """A batcher whose searches may wait for a registered verifier."""

    def __init__(self, model: Model, wake: Callable[[], None], limits: Limits) -> None:
        super().__init__(model)
        self.calls: dict[int, VerifierCall] = {}
        self.clients: dict[int, str] = {}  # by search
        self.limits = limits
        self._wake = wake
        self._abandoned: list[VerifierCall] = []

    @property
    def stuck(self) -> int:
        """Abandoned verifier calls that are still alive."""
        return sum(call.replies is None for call in self._abandoned)

    def patience(self) -> float:
        """Seconds until a call is late, or a search that waits for a place may have one."""
        if self.pending():
            return PLACE_SECONDS
        since = min((call.since for call in self.calls.values()), default=math.inf)
        late = since + self.limits.verifier_seconds - time.monotonic()
        return min(max(late, 0.001), IDLE_SECONDS)

    def pending(self) -> dict[object, dict[int, Verify]]:
        """Requests to verifiers that are not at work, by verifier; those that cannot share a call by
        themselves."""
        busy = {call.group for call in self.calls.values()}
        groups: dict[object, dict[int, Verify]] = {}
        for key, running in self.running.items():
            request = running.request
            if key not in self.calls and is_for_verifier(request):
                group = id(request.verifier) if request.shares_calls else ("alone", key)
                groups.setdefault(group, {})[key] = request
        return {group: requests for group, requests in groups.items() if group not in busy}

    def collect(self) -> list[tuple[int, Event]]:
        """Events of searches whose verifier has returned, or takes too long; starts the calls that wait."""
        events: list[tuple[int, Event]] = []
        limit, most = self.limits.verifier_seconds, self.limits.verifier_calls
        late_since = time.monotonic() - limit
        for call in dict.fromkeys(self.calls.values()):
            for key, reply in zip(call.requests, call.replies or (), strict=False):
                if self.calls.pop(key, None) is not None:  # not cancelled meanwhile
                    events += self._advance(key, reply)
        for key, call in self.calls.items():
            if call.since < late_since:
                message = f"the verifier did not answer within {limit:g} s; use another verifier"
                events.append((key, ApiError(504, message, code="verifier_timeout")))
        self._abandoned = [call for call in self._abandoned if call.replies is None]
        hung_since = late_since - ENDING_SECONDS
        for group, requests in self.pending().items():
            verifier = next(iter(requests.values())).verifier
            pool = verifier.name or type(verifier).__name__
            calls = {call for call in (*self.calls.values(), *self._abandoned) if call.pool == pool}
            own = {call for call in calls if call.client == self.clients[min(requests)]}
            hung = [call for call in self._abandoned if call.since < hung_since]
            if len(calls.intersection(hung)) >= most or len(own.intersection(hung)) >= share(most):
                message = "calls of this verifier hang; requests with another still work"
                error = ApiError(503, message, code="verifier_stuck")
                events += ((key, error) for key in requests)
            elif len(calls) < most and len(own) < share(most):
                self._start_call(group, requests, pool)
        return events

    def _start_call(self, group: object, requests: Mapping[int, Verify], pool: str) -> None:
        call = VerifierCall(requests, group, pool, self.clients[min(requests)])
        self.calls |= dict.fromkeys(requests, call)

        def run() -> None:
            wanted.set(lambda: any(self.calls.get(key) is call for key in requests))
            call.replies = self._verify(requests)
            self._wake()

        threading.Thread(target=run, name=f"verifier-{min(requests)}", daemon=True).start()

    def remove(self, key: int) -> None:
        super().remove(key)
        self.clients.pop(key, None)
        call = self.calls.pop(key, None)
        if call is not None and call not in self.calls.values():
            self._abandoned.append(call)

    def start(self, running: Running, client: str = "") -> int:
        key = super().start(running)
        self.clients[key] = client
        self._portion(running)
        return key

    def _advance(self, key: int, reply: Any) -> list[tuple[int, Event]]:
        running = self.running[key]
        request = running.request
        if isinstance(request, Portions) and request.left and reply is None:
            return []
        events = super()._advance(key, reply)
        self._portion(running)
        return events

    def _portion(self, running: Running) -> None:
        if running.request is not None and running.rows > self.limits.batch:
            running.request = Portions(running.request, max(1, self.limits.batch // 2))

    def _at_once(self, running: Running) -> bool:
        """Not the many texts of a wide step: others take their turns meanwhile."""
        few = running.job.settings.search.texts_at_once <= PORTION
        return few and running.job.verifier is None and super()._at_once(running)

    def _verify(self, requests: Mapping[int, Verify]) -> list[Scored]:
        """Also for what is no `Exception`: SystemExit in a verifier."""
        try:
            return super()._verify(requests)
        except BaseException as error:
            failure = VerifierError(f"the verifier raised {type(error).__name__}")
            failure.__cause__ = error
            return [failure] * len(requests)

    def _events(self, running: Running, reply: Any) -> Iterator[Event]:
        """Whatever is raised ends this search only, also what is no `Exception`: a panic of the
        tokenizer."""
        try:
            yield from super()._events(running, reply)
        except BaseException as error:
            running.request = None
            log("search failed", level=logging.ERROR, with_traceback=True)
            yield as_api_error(error)
