"""One thread owns the model: it starts searches, steps them together, and reports their events.

Requests hand in jobs and get tickets; everything about a ticket is reported through its `tell`, called
from this thread. Time limits are kept by the request's own side (streaming.py), so that they hold when
this thread does not answer. Which searches share a forward pass changes nobody's result.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from s3dlm.engine import Event, Job, Result
from s3dlm.errors import S3dlmError, VerifierError
from s3dlm.job import Running, prepare
from s3dlm.models.base import Model
from s3dlm.search.step import Step
from s3dlm.server.batching import Demand, FairShare, ServerBatcher
from s3dlm.server.limits import Limits, share
from s3dlm.server.reporting import (
    ApiError,
    Metrics,
    as_api_error,
    engine_failed,
    log,
    log_verifier_failure,
    shutting_down,
)

JOIN_SECONDS = 5.0
TOKENIZER_THREADS = 2  # one slow prompt does not hold up the next


@dataclass(frozen=True, slots=True)
class Started:
    """The first event of a ticket."""

    prompt_tokens: int


@dataclass(slots=True, eq=False)
class Ticket:
    """One search of one request, from the queue to its last event."""

    job: Job
    tell: Tell
    watched: bool  # whether steps are reported, or only the end
    client: str
    request: int
    arrived: float = field(default_factory=time.monotonic)
    prepared: Running | Exception | None = None  # None: still being tokenised
    cancelled: bool = False
    told: int = 0  # steps, counted by the scheduler
    read: int = 0  # steps, counted by the reader: two counters, since two threads count


Tell = Callable[[Ticket, Event | Started], None]


class Scheduler:
    """The queue and the thread behind it."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        self.draining = False  # nothing new is accepted; what is queued or running continues
        self.failed = False  # the engine's thread has ended by an error
        self._stopped = False
        self._lock = threading.Lock()  # of the queue
        self._changed = threading.Event()  # there may be something to do
        self.waiting: list[Ticket] = []
        self.running: dict[int, Ticket] = {}
        self.batcher = ServerBatcher(model, self._changed.set, limits)
        self._fair = FairShare(limits.batch)
        self._requests = itertools.count()
        self._unprepared: queue.SimpleQueue[Sequence[Ticket]] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._latency = 1.0  # seconds a search took lately, for Retry-After
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        metrics.waiting.set_function(lambda: len(self.waiting))
        metrics.running.set_function(lambda: len(self.running))
        metrics.stuck.set_function(lambda: self.batcher.stuck)

    # --- called from any thread

    def start(self) -> None:
        self._thread.start()
        for _ in range(TOKENIZER_THREADS):
            threading.Thread(target=self._prepare, name="tokenizer", daemon=True).start()

    def submit(
        self, jobs: Sequence[Job], tell: Tell, *, watched: bool, client: str = ""
    ) -> list[Ticket]:
        """Queue the searches of a request, all or none."""
        request = next(self._requests)
        tickets = [Ticket(job, tell, watched, client, request) for job in jobs]
        with self._lock:
            if self.failed:
                raise engine_failed()
            if self.draining:
                raise shutting_down()
            everyone, seconds = len(self.waiting), math.ceil(self._latency)
            own = sum(ticket.client == client for ticket in self.waiting)
            for whose, waiting, most in (
                ("the queue is", everyone, self.limits.waiting),
                ("your share of the queue is", own, share(self.limits.waiting)),
            ):
                if waiting + len(tickets) > most:
                    message = f"{whose} full: {waiting} searches wait; try again in {seconds} s"
                    raise ApiError(429, message, code="queue_full", retry_after=seconds)
            self.waiting.extend(tickets)
        self._unprepared.put(tickets)
        return tickets

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """End searches: they leave the queue at once and the batch before its next pass."""
        with self._lock:
            for ticket in tickets:
                ticket.cancelled = True
            self.waiting = [ticket for ticket in self.waiting if not ticket.cancelled]
        self._changed.set()

    def has_read(self, ticket: Ticket) -> None:
        """Count a step that was read; a search that paused for its reader continues."""
        ticket.read += 1
        if ticket.told - ticket.read == self.limits.unread - 1:
            self._changed.set()

    @property
    def problem(self) -> str | None:
        """Why requests are not answered at present, if they are not."""
        since = self._busy_since
        if self.failed:
            return "engine failed"
        if since is not None and time.monotonic() - since > self.limits.stall_seconds:
            return "engine stalled"
        return "shutting down" if self.draining else None

    @property
    def load(self) -> dict[str, int]:
        """Searches waiting and running."""
        return {"waiting": len(self.waiting), "running": len(self.running)}

    @property
    def idle(self) -> bool:
        return not any(self.load.values())

    def stop(self, *, wait: bool = True) -> None:
        """End the thread after its present round; searches that still run are told so."""
        self.draining = self._stopped = True
        self._changed.set()
        for _ in range(TOKENIZER_THREADS):
            self._unprepared.put(())
        if wait and self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    # --- the tokenizer's threads: daemons, since a slow tokenizer must not keep the process alive

    def _prepare(self) -> None:
        """Check and tokenise the prompts of one request at a time, each prompt once."""
        while tickets := self._unprepared.get():  # an empty request ends the thread
            tokenizer = self.model.tokenizer
            once: Any = copy.copy(tokenizer)
            once.chat, once.converse = cache(tokenizer.chat), cache(tokenizer.converse)
            model = replace(self.model, tokenizer=once)
            for ticket in tickets:
                if ticket.cancelled:
                    continue
                try:
                    ticket.prepared = prepare(model, ticket.job)
                except BaseException as error:  # the tokenizer is not Python: it may panic
                    if not isinstance(error, S3dlmError):
                        log("preparation failed", level=logging.ERROR, with_traceback=True)
                    ticket.prepared = as_api_error(error)
            self._changed.set()

    # --- the engine's thread

    def _run(self) -> None:
        last = shutting_down()
        try:
            self._serve()
        except BaseException:  # whatever it is, nobody may go on waiting for this thread
            log("engine failed", level=logging.CRITICAL, with_traceback=True)
            last = engine_failed()
            self.failed = True
        with self._lock:
            left = [*self.waiting, *self.running.values()]
            self.waiting, self.running = [], {}
        for ticket in left:
            ticket.tell(ticket, last)

    def _serve(self) -> None:
        """Round after round: drop who left, report, start who is new, one forward pass."""
        while not self._stopped:
            self._changed.clear()  # first, so that nothing that happens during the round is missed
            self._busy_since = time.monotonic()
            for key in [key for key, ticket in self.running.items() if ticket.cancelled]:
                self._end(key, None)
            self._report(self.batcher.collect())
            self._start_waiting()
            if keys := self._fair.choose(self._demands()):
                self._forward(keys)
            else:
                self._busy_since = None
                self._changed.wait(self.batcher.patience())

    def _demands(self) -> list[Demand]:
        """Searches that are ready for a pass and whose reader keeps up."""
        return [
            Demand(key, ticket.client, ticket.request, search.rows)
            for key, search in self.batcher.running.items()
            if (ticket := self.running[key]).told - ticket.read < self.limits.unread and search.rows
        ]

    def _forward(self, keys: Sequence[int]) -> None:
        total = sum(self.batcher.running[key].rows for key in keys)
        try:
            events = self.batcher.step(keys)
        except Exception as error:
            log("forward pass failed", level=logging.ERROR, with_traceback=True, searches=len(keys))
            if len(keys) == 1:
                self._end(keys[0], error)
            else:  # one by one, so that each gets its own error or none
                for key in keys:
                    self._forward([key])
            return
        self.metrics.batch.observe(total)
        self.metrics.nfe.inc(total)
        self.metrics.forwards.inc()
        self._report(events)

    def _start_waiting(self) -> None:
        """Start searches as long as there is room."""
        while len(self.running) < self.limits.running:
            with self._lock:
                if (ticket := self._next()) is None:
                    return
                self.waiting.remove(ticket)
            prepared = ticket.prepared
            assert prepared is not None  # `_next` chooses no other
            if isinstance(prepared, Exception):
                ticket.tell(ticket, prepared)
                continue
            try:
                key = self.batcher.start(prepared, ticket.client)
            except Exception as error:
                log("start failed", level=logging.ERROR, with_traceback=True)
                ticket.tell(ticket, error)
                continue
            self.running[key] = ticket
            self.metrics.queued.observe(time.monotonic() - ticket.arrived)
            ticket.tell(ticket, Started(int(prepared.process.prompt.size)))

    def _next(self) -> Ticket | None:
        """Who starts next: of the client with the fewest searches running, in order of arrival. A client
        gets at most half of the places and of the memory, so that others find some; a search for
        whose memo there is no room yet is not overtaken by others that need some."""
        running, held, memory = Counter[str](), Counter[str](), self.limits.memos << 20
        for key, ticket in self.running.items():
            running[ticket.client] += 1
            held[ticket.client] += self.batcher.running[key].run.memo.capacity
        room = memory - held.total()
        for ticket in sorted(self.waiting, key=lambda ticket: running[ticket.client]):
            search, own = ticket.prepared, held[ticket.client]
            if search is None or running[ticket.client] >= max(1, self.limits.running // 2):
                continue
            needed = search.run.memo.capacity if isinstance(search, Running) else 0
            beyond_its_share = own and own + needed > memory // 2
            if not needed or (needed <= room and not beyond_its_share):
                return ticket
            room = room if beyond_its_share else 0
        return None

    def _report(self, events: Iterable[tuple[int, Event]]) -> None:
        for key, event in events:
            ticket = self.running.get(key)
            if ticket is None:
                continue
            if not isinstance(event, Step):
                self._end(key, event)
            elif ticket.watched and not ticket.cancelled:
                ticket.told += 1
                ticket.tell(ticket, event)

    def _end(self, key: int, event: Result | Exception | None) -> None:
        """Forget a search; its owner is told why, unless it left first."""
        ticket = self.running.pop(key)
        self.batcher.remove(key)
        self._fair.keep((each.client, each.request) for each in self.running.values())
        outcome = "cancelled" if event is None else "failed"
        if isinstance(event, Result):
            outcome = "finished"
            self._latency += 0.2 * (event.seconds - self._latency)
            self.metrics.forward_seconds.inc(event.timings["forward"])
            self.metrics.verifier_seconds.inc(event.timings["verifier"])
        if isinstance(event, VerifierError):
            log_verifier_failure(event, (ticket.job.question, ticket.job.infill or ""))
        self.metrics.ended.labels(ticket.job.settings.method, outcome).inc()
        if event is not None:
            ticket.tell(ticket, event)
