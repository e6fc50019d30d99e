"""One thread owns the model: it admits searches, steps them together, and tells their owners.

Requests hand in jobs and get tickets; everything about a ticket is told through its `tell`, called
from this thread. A search is admitted when the rows it can fill fit beside those already running,
in order of arrival. What a ticket is told does not depend on who else is running.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from s3dlm.engine import Job, Result
from s3dlm.models.base import Model
from s3dlm.search.step import Step
from s3dlm.server import errors
from s3dlm.server.batching import Event, ServerBatcher
from s3dlm.server.declared import batch_size, method_name
from s3dlm.server.limits import Limits
from s3dlm.server.telemetry import Metrics, log

IDLE_SECONDS = 60.0  # nothing to do: look up now and then all the same


@dataclass(frozen=True, slots=True)
class Started:
    """The first thing a ticket is told."""

    prompt_tokens: int
    queued: float  # seconds


@dataclass(slots=True, eq=False)
class Ticket:
    """One search of one request, from the queue to its last event."""

    job: Job
    tell: Callable[[Ticket, Event | Started], None]
    watched: bool  # whether steps are told, or only the end
    deadline: float
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    width: int = 0  # the most rows it can fill
    told: int = 0  # steps, counted by the scheduler
    read: int = 0  # steps, counted by the reader: two counters, since two threads count


class Scheduler:
    """The queue and the thread behind it."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}
        self._batcher = ServerBatcher(model, self._wake)
        self._draining = self._stopped = False
        self._rows = 0  # for observers, who must not look into the packer while it works
        self._latency = 1.0  # seconds a search took lately, for Retry-After
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    # --- called from any thread

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, jobs: Sequence[Job], tell: Callable[[Ticket, Event | Started], None], *, watched: bool
    ) -> list[Ticket]:
        """Queue some searches, all or none."""
        deadline = time.monotonic() + self.limits.seconds
        tickets = [
            Ticket(job, tell, watched, deadline, width=batch_size(job.settings)) for job in jobs
        ]
        with self._changed:
            if self._draining:
                raise errors.shutting_down()
            if len(self._waiting) + len(tickets) > self.limits.waiting:
                raise errors.queue_full(len(self._waiting), math.ceil(self._latency))
            self._waiting.extend(tickets)
            self._changed.notify()
        return tickets

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """Give searches up: they leave the queue at once and the batch before its next forward."""
        with self._changed:
            for ticket in tickets:
                ticket.cancelled = True
            self._changed.notify()

    def drain(self) -> None:
        """Take nothing new; what is queued or running goes on."""
        self._draining = True

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    @property
    def load(self) -> dict[str, int]:
        """Searches waiting and running, and rows for the next forward."""
        return {
            "waiting": len(self._waiting),
            "running": len(self._running),
            "rows": self._rows,
        }

    def stop(self) -> None:
        """End the thread after its present step; searches still under way are told so."""
        with self._changed:
            self._draining = self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    # --- the thread

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stopped and not self._has_work():
                    self._changed.wait(self._patience())
                if self._stopped:
                    break
            self._turn()
        for ticket in [*self._waiting, *self._running.values()]:
            ticket.tell(ticket, errors.shutting_down())

    def _has_work(self) -> bool:
        return bool(
            self._batcher.rows
            or self._batcher.returned
            or (self._waiting and self._room_for(self._waiting[0]))
            or any(one.cancelled for one in (*self._waiting, *self._running.values()))
        )

    def _patience(self) -> float:
        """Seconds until the next deadline of anyone."""
        ends = [ticket.deadline for ticket in (*self._waiting, *self._running.values())]
        ends += [one.since + self.limits.verifier_seconds for one in self._batcher.calls.values()]
        return min(max(min(ends) - time.monotonic(), 0.001), IDLE_SECONDS) if ends else IDLE_SECONDS

    def _turn(self) -> None:
        """One round: who left, who came back, who is new, one forward for all."""
        self._drop()
        self._pass_on(self._batcher.collect())
        self._admit()
        rows = self._batcher.rows
        if rows:
            self.metrics.batch.observe(rows)
            self.metrics.nfe.inc(rows)
            self.metrics.forwards.inc()
            self._forward()
        self._gauge()

    def _forward(self) -> None:
        try:
            events = self._batcher.step()
        except Exception as error:  # the model failed, and with it everyone in the batch
            log("forward failed", level=40, with_traceback=True)
            for key in list(self._running):
                self._end(key, error)
            return
        self._pass_on(events)

    def _drop(self) -> None:
        now = time.monotonic()
        with self._changed:
            gone = [one for one in self._waiting if one.cancelled or now > one.deadline]
            for ticket in gone:
                self._waiting.remove(ticket)
        for ticket in gone:
            if not ticket.cancelled:
                ticket.tell(ticket, errors.too_late(self.limits.seconds))
        patience = self.limits.verifier_seconds
        for key, ticket in list(self._running.items()):
            call = self._batcher.calls.get(key)
            if ticket.cancelled:
                self._end(key, None)
            elif now > ticket.deadline:
                self._end(key, errors.too_late(self.limits.seconds))
            elif call is not None and now > call.since + patience:
                self._end(key, errors.verifier_hangs(patience))
            elif ticket.told - ticket.read > self.limits.backlog:
                self._end(key, errors.slow_reader(self.limits.backlog))

    def _admit(self) -> None:
        while True:
            with self._changed:
                if not self._waiting or not self._room_for(self._waiting[0]):
                    return
                ticket = self._waiting.popleft()
            self._begin(ticket)

    def _room_for(self, ticket: Ticket) -> bool:
        taken = sum(one.width for one in self._running.values())
        return not taken or taken + ticket.width <= self.limits.batch

    def _begin(self, ticket: Ticket) -> None:
        stuck = self._batcher.stuck
        try:
            if ticket.job.verifier is not None and stuck >= self.limits.stuck_verifiers:
                raise errors.verifiers_stuck(stuck)
            key = self._batcher.add(ticket.job)
        except Exception as error:
            ticket.tell(ticket, error)
            return
        self._running[key] = ticket
        queued = time.monotonic() - ticket.arrived
        self.metrics.queued.observe(queued)
        tokens = int(self._batcher.running[key].process.prompt.size)
        ticket.tell(ticket, Started(tokens, queued))

    def _pass_on(self, events: Iterable[tuple[int, Event]]) -> None:
        for key, event in events:
            ticket = self._running.get(key)
            if ticket is None:
                continue
            if not isinstance(event, Step):
                self._end(key, event)
            elif ticket.watched and not ticket.cancelled:
                ticket.told += 1
                ticket.tell(ticket, event)

    def _end(self, key: int, event: Result | Exception | None) -> None:
        """Forget a search; its owner is told why unless it was the one to leave."""
        ticket = self._running.pop(key)
        self._batcher.remove(key)
        outcome = "cancelled" if event is None else "failed"
        if isinstance(event, Result):
            outcome = "finished"
            self._latency += 0.2 * (event.seconds - self._latency)
            self.metrics.forward_seconds.inc(event.timings["forward"])
            self.metrics.verifier_seconds.inc(event.timings["verifier"])
        self.metrics.ended.labels(method_name(ticket.job.settings), outcome).inc()
        if event is not None:
            ticket.tell(ticket, event)

    def _gauge(self) -> None:
        self._rows = self._batcher.rows
        self.metrics.waiting.set(len(self._waiting))
        self.metrics.running.set(len(self._running))
        self.metrics.stuck.set(self._batcher.stuck)
