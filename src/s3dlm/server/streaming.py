"""The asyncio side of a request's searches: their events, and the text that cannot change any more.

A diffusion model does not write from left to right, and a search may still drop any particle. But a
revealed token never changes, and the answer descends from the survivors of every step: the tokens
that *all* survivors have revealed and agree on, from the first position without a gap, are certain
to begin the answer. Only they are streamed, and nothing is taken back. A method whose answer may be
an earlier text, or that starts over, sends everything at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from s3dlm.engine import Event, Job, Result
from s3dlm.errors import S3dlmError
from s3dlm.models.base import Model
from s3dlm.search.step import Step
from s3dlm.server.reporting import ApiError, as_api_error, log
from s3dlm.server.scheduler import Scheduler, Started, Ticket

Work = TypeVar("Work")
EVENTS = "text/event-stream"
SILENT_SECONDS = 15.0
BROKEN = "\ufffd"  # half of a character, whose other half is in a later token


class Watch:
    """The events of a request's searches in one asyncio queue; closing it cancels them.

    The time limit is kept here, in the event loop, so that it holds even if the engine does not answer.
    """

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

    async def events(self) -> AsyncIterator[tuple[int, Started | Step | Result]]:
        """(search, event) until every search has its result; the first error is raised."""
        while self._open:
            try:
                async with asyncio.timeout_at(self._deadline):
                    ticket, event = await self._queue.get()
            except TimeoutError:
                limit = f"longer than this server's limit of {self._scheduler.limits.seconds:g} s"
                message = f"the search took {limit}; use fewer steps, particles or tokens"
                raise ApiError(504, message, code="time_limit") from None
            index = self._open[ticket]
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Step):
                self._scheduler.has_read(ticket)
            elif isinstance(event, Result):
                del self._open[ticket]
            yield index, event

    def close(self) -> None:
        """Cancel what is still running."""
        self._scheduler.cancel(self._open)
        self._open = {}


async def unless_disconnected(request: Request, watch: Watch, work: Awaitable[Work]) -> Work:
    """Do some work, or stop it as soon as the client disconnects; searches end with it."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise ClientDisconnect
    except BaseException:
        watch.close()
        raise
    finally:
        for task in tasks:
            task.cancel()


async def never_silent(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Server-sent events, and a comment, which clients skip, whenever nothing came for a while: in the queue, or
    during a long step. Proxies give up a connection that is silent for a minute."""
    following = asyncio.ensure_future(anext(pieces))
    try:
        while True:
            done, _ = await asyncio.wait((following,), timeout=SILENT_SECONDS)
            if not done:
                yield ": waiting\n\n"
                continue
            try:
                piece = following.result()
            except StopAsyncIteration:
                return
            yield piece
            following = asyncio.ensure_future(anext(pieces))
    finally:
        following.cancel()


async def streamed(
    request: Request,
    watch: Watch,
    pieces: AsyncIterator[str],
    failure: Callable[[ApiError], str],
    media_type: str = EVENTS,
) -> Response:
    """Send pieces as they come. Errors before the first are plain responses, later ones events."""
    pieces = never_silent(pieces) if media_type == EVENTS else pieces
    first = await unless_disconnected(request, watch, anext(pieces))

    async def body() -> AsyncIterator[str]:
        try:
            yield first
            async for piece in pieces:
                yield piece
        except Exception as error:
            if not isinstance(error, (ApiError, S3dlmError)):
                log("stream failed", level=logging.ERROR, with_traceback=True)
            told = as_api_error(error)
            request.state.note["error"] = told.body["error"]["code"]
            yield failure(told)
        finally:
            watch.close()

    return StreamingResponse(body(), media_type=media_type, headers={"Cache-Control": "no-store"})


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop sequence, and whether there was one."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


@dataclass(slots=True)
class CertainText:
    """What has been sent of one choice, and what may follow."""

    model: Model
    stops: tuple[str, ...]
    live: bool  # whether the answer descends from the survivors of every step; else it is sent at the end
    sent: str = ""
    stopped: bool = False

    def after(self, step: Step) -> str:
        """What became certain at this step."""
        mask = self.model.denoiser.mask_id
        if not self.live or self.stopped or mask < 0:  # without masks, tokens may be taken back
            return ""
        rows = step.tokens[step.survivor]
        same = (rows == rows[0]).all(axis=0) & (rows[0] != mask)
        tokens = rows[0, : np.cumprod(same).sum()].tolist()  # up to the first difference
        ends = [i for i, token in enumerate(tokens) if token in self.model.end_ids]
        # The last token may still change how its neighbour is spelt.
        known = tokens[: ends[0]] if ends else tokens[:-1]
        text, self.stopped = cut(self.model.tokenizer.decode(known).rstrip(BROKEN), self.stops)
        if not self.stopped and self.stops:
            # The end of a certain text may be the beginning of a stop sequence.
            text = text[: max(0, len(text) - max(map(len, self.stops)) + 1)]
        return self._new(text)

    def rest(self, text: str) -> str:
        """What is left of the final text."""
        return self._new(cut(text, self.stops)[0])

    def _new(self, text: str) -> str:
        if not text.startswith(self.sent):
            return ""
        new = text[len(self.sent) :]
        self.sent = text
        return new
