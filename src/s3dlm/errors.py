"""Every error this package raises on purpose.

S3dlmError
├── SettingsError        a setting, name or argument is not allowed (also a ValueError)
├── PromptError          a prompt is empty or does not fit the model (also a ValueError)
├── ModelError           a model cannot be found, read or run
├── VerifierError        a verifier raised, hung or returned something that is not a score
├── SandboxError         code cannot be run safely on this machine
├── RecordError          a record, trace or data file cannot be read or does not fit the run
└── MissingExtraError    an optional dependency is not installed (also an ImportError)

Messages say what was given, what is allowed and what to do.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

MOST_NAMES = 12  # of a table that a message lists


class S3dlmError(Exception):
    """The root: catch this to catch everything the package raises on purpose."""


class SettingsError(S3dlmError, ValueError):
    """A setting, name or argument is not allowed."""


class PromptError(S3dlmError, ValueError):
    """A prompt is empty or does not fit the model."""


class ModelError(S3dlmError):
    """A model cannot be found, read or run."""


class VerifierError(S3dlmError):
    """A verifier raised, hung or returned something that is not a score."""


class SandboxError(S3dlmError):
    """Code cannot be run safely on this machine."""


class RecordError(S3dlmError):
    """A record, trace or data file cannot be read or does not fit the run."""


class MissingExtraError(S3dlmError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 's3dlm[{extra}]'")
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Errors of a worker process arrive as they were raised."""
        return type(self), (self.package, self.extra)


class TemperatureWarning(UserWarning):
    """A search was asked to compare children that are all equal."""


def short_repr(value: object) -> str:
    """A value as an error message quotes it: short, whatever was given."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"(a whole number of {value.bit_length()} bits)"
    return reprlib.repr(value)


def unknown_name(what: str, got: object, allowed: Iterable[str]) -> str:
    """The message for a name that is not in a table: what was given, and the nearest or what there is."""
    names, text = list(allowed), got[:80] if isinstance(got, str) else ""
    near = difflib.get_close_matches(text, names, n=1)
    near += [name for name in names if len(text) > 2 and text.lower() in name.lower()]
    more = f", … ({len(names)} in all)" if len(names) > MOST_NAMES else ""
    some = ", ".join(sorted(names)[:MOST_NAMES]) + more
    remedy = f"did you mean {near[0]!r}?" if near else f"choose one of: {some}"
    return f"{what}={short_repr(got)} is unknown; {remedy}"
