"""Traces of evaluated samples: the engine's own trace format, one file a search.

A trace is written when its search has ended, as a whole: a resumed run overwrites what a kill left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s3dlm.engine import Job, Result
from s3dlm.evaluation.records import write_atomic
from s3dlm.models.base import Model
from s3dlm.search.loop import Step
from s3dlm.trace import TraceEncoder


@dataclass(slots=True)
class TraceFile:
    """Collects the events of one search until its result is there."""

    path: Path
    model: Model
    job: Job
    lines: list[dict[str, Any]] = field(default_factory=list)
    encoder: TraceEncoder | None = None

    def add(self, event: Step | Result) -> None:
        if self.encoder is None:
            self.encoder = TraceEncoder.of(self.model)
            job = self.job
            self.lines.append(
                self.encoder.header(self.model.name, job.question, job.task, job.settings)
            )
        self.lines.append(self.encoder.event(event))

    def finish(self, result: Result) -> None:
        """Add the result and write the file."""
        self.add(result)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)
        write_atomic(self.path, text)
        self.lines.clear()
