"""A sandbox for code that models write: separate processes, no files, no network, bounded."""

from s3dlm.sandbox.exchange import Outcome
from s3dlm.sandbox.limits import Limits
from s3dlm.sandbox.runner import Sandbox, Verdict, configure, shared

__all__ = ["Limits", "Outcome", "Sandbox", "Verdict", "configure", "shared"]
