"""The asyncio side of a request's searches: their events in order, and when to stop waiting.

The time limit is kept here, in the event loop, so that it holds even if the engine does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from s3dlm.engine import Job, Result
from s3dlm.search.step import Step
from s3dlm.server.batching import Event
from s3dlm.server.errors import too_late
from s3dlm.server.scheduler import Scheduler, Started, Ticket

T = TypeVar("T")


class ClientGone(Exception):  # noqa: N818
    """The client disconnected."""


class Watch:
    """Some tickets' events in one asyncio queue; closing it cancels them."""

    def __init__(
        self, scheduler: Scheduler, jobs: Sequence[Job], *, watched: bool, client: str = ""
    ) -> None:
        loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[Ticket, Event | Started]] = asyncio.Queue()
        self._scheduler = scheduler
        self._deadline = loop.time() + scheduler.limits.seconds

        def tell(ticket: Ticket, event: Event | Started) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
                loop.call_soon_threadsafe(self._queue.put_nowait, (ticket, event))

        tickets = scheduler.submit(jobs, tell, watched=watched, client=client)
        self._open = {ticket: index for index, ticket in enumerate(tickets)}
        self._first: tuple[Ticket, Event | Started] | None = None

    async def begin(self) -> None:
        """Wait for the first event, so that an error comes before any part of an answer."""
        self._first = await self._next()

    async def _next(self) -> tuple[Ticket, Started | Step | Result]:
        try:
            async with asyncio.timeout_at(self._deadline):
                ticket, event = self._first or await self._queue.get()
        except TimeoutError:
            self.close()
            raise too_late(self._scheduler.limits.seconds) from None
        self._first = None
        if isinstance(event, Exception):
            self.close()
            raise event
        return ticket, event

    async def events(self) -> AsyncIterator[tuple[int, Started | Step | Result]]:
        """(search, event) until every search has its result; the first error is raised."""
        while self._open:
            ticket, event = await self._next()
            index = self._open[ticket]
            if isinstance(event, Step):
                self._scheduler.has_read(ticket)
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
