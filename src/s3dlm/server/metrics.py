"""What Prometheus may know: counts and times, never a prompt. One registry for each server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The server's own registry; names start with s3dlm_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"registry": self.registry}
        self.requests = Counter(
            "s3dlm_requests", "Answered requests.", ["endpoint", "status"], **own
        )
        self.latency = Histogram(
            "s3dlm_request_seconds", "Arrival to last byte.", ["endpoint"], buckets=SECONDS, **own
        )
        self.waiting = Gauge("s3dlm_queue_waiting", "Searches in the queue.", **own)
        self.running = Gauge("s3dlm_searches_running", "Searches under way.", **own)
        self.queued = Histogram(
            "s3dlm_queue_seconds", "Time a search waited.", buckets=SECONDS, **own
        )
        self.ended = Counter(
            "s3dlm_searches", "Searches by how they ended.", ["method", "outcome"], **own
        )
        self.nfe = Counter("s3dlm_nfe", "Rows forwarded.", **own)
        self.forwards = Counter("s3dlm_forwards", "Calls of the model.", **own)
        self.rows = Histogram("s3dlm_rows_per_forward", "Rows packed.", buckets=ROWS, **own)
        self.forward_seconds = Counter("s3dlm_forward_seconds", "Time inside the model.", **own)
        self.verifier_seconds = Counter("s3dlm_verifier_seconds", "Time inside verifiers.", **own)
        self.stuck = Gauge("s3dlm_verifiers_stuck", "Abandoned verifier calls still alive.", **own)
        self.tokens = Counter("s3dlm_tokens", "Tokens of prompts and answers.", ["kind"], **own)

    def text(self) -> bytes:
        """The exposition format."""
        data: bytes = generate_latest(self.registry)
        return data
