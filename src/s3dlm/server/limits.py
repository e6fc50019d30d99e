"""How much one request may use and how much the server accepts: bounds as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from s3dlm.errors import SettingsError
from s3dlm.server.declared import batch_size
from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's bounds; a request beyond one of them is refused with the limit's value."""

    length: int = 1024  # gen_length
    children: int = 64  # particles times branching
    steps: int = 1024
    choices: int = 16  # searches per request: prompts times n
    seconds: float = 300.0  # from arrival to answer
    verifier_seconds: float = 10.0  # one step of a registered verifier
    stuck_verifiers: int = 4  # verifiers that may hang before no more are started
    body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # from the first to the last byte of a body
    waiting: int = 128  # searches in the queue
    batch: int = 128  # canvases per forward pass
    backlog: int = 512  # steps a slow reader may be behind

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise SettingsError(
                    f"limit {field.name}={value!r} is not allowed; give a number above 0"
                )

    def check(self, settings: Settings) -> None:
        """Refuse settings beyond a limit, or that do not fit together."""
        asked = {
            "length": ("gen_length", settings.gen_length),
            "children": ("particles × branching", batch_size(settings)),
            "steps": ("steps", settings.steps),
        }
        for limit, (name, value) in asked.items():
            most = getattr(self, limit)
            if value > most:
                raise SettingsError(
                    f"{name}={value} is more than this server's limit of {most}; give a smaller value"
                )
