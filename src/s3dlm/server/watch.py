"""The asyncio side of a request's searches: their events in order, cancelled when the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from s3dlm.engine import Job, Result
from s3dlm.search.step import Step
from s3dlm.server.batching import Event
from s3dlm.server.scheduler import Scheduler, Started, Ticket

T = TypeVar("T")


class ClientGone(Exception):  # noqa: N818
    """The client disconnected."""


class Watch:
    """Some tickets' events in one asyncio queue; closing it cancels them."""

    def __init__(self, scheduler: Scheduler, jobs: Sequence[Job], *, watched: bool) -> None:
        loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[Ticket, Event | Started]] = asyncio.Queue()
        self._scheduler = scheduler

        def tell(ticket: Ticket, event: Event | Started) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
                loop.call_soon_threadsafe(self._queue.put_nowait, (ticket, event))

        self._tickets = scheduler.submit(jobs, tell, watched=watched)
        self._open = {ticket: index for index, ticket in enumerate(self._tickets)}
        self._first: tuple[Ticket, Event | Started] | None = None

    async def begin(self) -> None:
        """Wait for the first event, so that an error comes before any part of an answer."""
        ticket, event = await self._queue.get()
        if isinstance(event, Exception):
            self.close()
            raise event
        self._first = (ticket, event)

    async def events(self) -> AsyncIterator[tuple[int, Started | Step | Result]]:
        """(search, event) until every search has its result; the first error is raised."""
        while self._open:
            ticket, event = self._first or await self._queue.get()
            self._first = None
            if isinstance(event, Exception):
                raise event
            index = self._open[ticket]
            if isinstance(event, Step):
                ticket.read += 1
            elif isinstance(event, Result):
                del self._open[ticket]
            yield index, event

    def close(self) -> None:
        """Cancel what is still running."""
        if self._open:
            self._scheduler.cancel(self._open)
            self._open = {}


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do some work, or stop it as soon as the client disconnects."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        gone.cancel()
        task.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
