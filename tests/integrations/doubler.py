"""Something light to hold in a worker: importing it must not import torch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from s3dlm.errors import ModelError


class Doubler:
    """Doubles, refuses, dies or fails, as it is told."""

    def double(self, chunk: list[int]) -> Iterator[int]:
        return iter([2 * number for number in chunk])

    def refuse(self, chunk: list[int]) -> list[int]:
        raise ModelError(f"{chunk} is refused; this is a test")

    def die(self, chunk: list[int]) -> list[int]:
        os.kill(os.getpid(), signal.SIGKILL)
        return chunk

    def defect(self, chunk: list[int]) -> list[int]:
        return [1 // 0]
