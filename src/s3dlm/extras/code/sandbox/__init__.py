"""A sandbox for code that models write: separate processes, no files, no network, bounded."""

from s3dlm.extras.code.sandbox.exchange import CodeResult, SandboxLimits
from s3dlm.extras.code.sandbox.runner import Sandbox, Verdict, configure, shared

__all__ = ["CodeResult", "Sandbox", "SandboxLimits", "Verdict", "configure", "shared"]
