"""A packer that waits for nobody's verifier.

The built-in verifiers take linear time and run where the search runs. A registered verifier is
foreign code: it advances its search in a thread of its own while the others go on forwarding, and
if it does not come back it is left behind. Python cannot end a thread, so the number of those left
behind is known and bounded by whoever admits new ones.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from s3dlm.engine import Packer, Result, advance
from s3dlm.errors import S3dlmError
from s3dlm.jobs import Running
from s3dlm.models.base import Model
from s3dlm.models.forward import Prediction
from s3dlm.search.loop import Step
from s3dlm.server.logs import log
from s3dlm.server.refusals import internal

Event = Step | Result | Exception


@dataclass(frozen=True, slots=True)
class Errand:
    """A search whose verifier is at work elsewhere."""

    thread: threading.Thread
    since: float


class PatientPacker(Packer):
    """A packer whose searches with foreign verifiers may be away for a while."""

    def __init__(self, model: Model, wake: Callable[[], None], **forward: int) -> None:
        super().__init__(model, **forward)
        self.away: dict[int, Errand] = {}
        self._wake = wake
        self._back: deque[tuple[int, list[Event]]] = deque()
        self._abandoned: list[threading.Thread] = []

    @property
    def stuck(self) -> int:
        """Abandoned verifier calls that are still alive."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        return len(self._abandoned)

    @property
    def returned(self) -> bool:
        """Whether `collect` has something to tell."""
        return bool(self._back)

    def _advance(
        self, key: int, one: Running, predictions: list[Prediction]
    ) -> Iterator[Step | Result | S3dlmError]:
        if one.job.verifier is not None:
            self._send_away(key, one, predictions)
            return
        yield from _told(one, predictions)  # type: ignore[misc]
        if not one.asked:
            del self.running[key]

    def _send_away(self, key: int, one: Running, predictions: list[Prediction]) -> None:
        one.asked = None

        def work() -> None:
            self._back.append((key, list(_told(one, predictions))))
            self._wake()

        thread = threading.Thread(target=work, name=f"verifier-{key}", daemon=True)
        self.away[key] = Errand(thread, time.monotonic())
        thread.start()

    def collect(self) -> list[tuple[int, Event]]:
        """What searches say that came back from their verifier."""
        events: list[tuple[int, Event]] = []
        while self._back:
            key, said = self._back.popleft()
            if self.away.pop(key, None) is None:
                continue  # given up meanwhile
            events.extend((key, event) for event in said)
            if not self.running[key].asked:
                del self.running[key]
        return events

    def remove(self, key: int) -> None:
        errand = self.away.pop(key, None)
        if errand is None:
            super().remove(key)
            return
        del self.running[key]  # its generator is running in the thread and cannot be closed here
        self._abandoned.append(errand.thread)


def _told(one: Running, predictions: list[Prediction]) -> Iterator[Event]:
    """What a search says; a defect ends this search with an error and touches no other."""
    try:
        yield from advance(one, predictions)
    except Exception:
        log("search failed", level=40, with_traceback=True)
        one.asked = None
        yield internal()
