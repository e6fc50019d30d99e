"""A batcher that waits for no verifier of another package.

The bundled verifiers take linear time and run in the engine's thread. A registered verifier is
foreign code: it runs in a thread of its own while the other searches continue, and is abandoned if
it does not return. Python cannot end a thread, so abandoned calls are counted and bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from s3dlm.engine import Batcher, Result, advance
from s3dlm.errors import S3dlmError
from s3dlm.jobs import Running
from s3dlm.models.base import Model
from s3dlm.models.forward import Prediction
from s3dlm.search.step import Step
from s3dlm.server.errors import internal
from s3dlm.server.telemetry import log

Event = Step | Result | Exception


@dataclass(frozen=True, slots=True)
class VerifierCall:
    """A registered verifier at work in its own thread."""

    thread: threading.Thread
    since: float


class ServerBatcher(Batcher):
    """A batcher whose searches may wait for a registered verifier."""

    def __init__(self, model: Model, wake: Callable[[], None], **forward: int) -> None:
        super().__init__(model, **forward)
        self.calls: dict[int, VerifierCall] = {}
        self._wake = wake
        self._returned: deque[tuple[int, list[Event]]] = deque()
        self._abandoned: list[threading.Thread] = []

    @property
    def stuck(self) -> int:
        """Abandoned verifier calls that are still alive."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        return len(self._abandoned)

    @property
    def returned(self) -> bool:
        """Whether `collect` has events."""
        return bool(self._returned)

    def _advance(
        self, key: int, one: Running, predictions: list[Prediction]
    ) -> Iterator[Step | Result | S3dlmError]:
        if one.job.verifier is not None:
            self._call_verifier(key, one, predictions)
            return
        yield from _events(one, predictions)  # type: ignore[misc]
        if not one.asked:
            del self.running[key]

    def _call_verifier(self, key: int, one: Running, predictions: list[Prediction]) -> None:
        one.asked = None

        def work() -> None:
            self._returned.append((key, list(_events(one, predictions))))
            self._wake()

        thread = threading.Thread(target=work, name=f"verifier-{key}", daemon=True)
        self.calls[key] = VerifierCall(thread, time.monotonic())
        thread.start()

    def collect(self) -> list[tuple[int, Event]]:
        """Events of searches whose verifier has returned."""
        events: list[tuple[int, Event]] = []
        while self._returned:
            key, told = self._returned.popleft()
            if self.calls.pop(key, None) is None:
                continue  # cancelled meanwhile
            events.extend((key, event) for event in told)
            if not self.running[key].asked:
                del self.running[key]
        return events

    def remove(self, key: int) -> None:
        call = self.calls.pop(key, None)
        if call is None:
            super().remove(key)
            return
        del self.running[key]  # its generator is running in the thread and cannot be closed here
        self._abandoned.append(call.thread)


def _events(one: Running, predictions: list[Prediction]) -> Iterator[Event]:
    """Events of a search; an unexpected exception ends this search only."""
    try:
        yield from advance(one, predictions)
    except Exception:
        log("search failed", level=40, with_traceback=True)
        one.asked = None
        yield internal()
