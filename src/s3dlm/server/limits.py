"""How much one request may use and how much the server accepts: bounds as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from s3dlm.diffusion.holes import Template
from s3dlm.errors import PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.server.declared import batch_size, most_nfe
from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's bounds; a request beyond one of them is refused with the limit's value."""

    # one request
    length: int = 1024  # gen_length
    children: int = 64  # particles times branching
    steps: int = 1024
    nfe: int = 100_000  # forward passes that one search can need
    choices: int = 16  # searches per request: prompts times n
    characters: int = 16  # of a prompt, per token of the model's context
    seconds: float = 300.0  # from arrival to answer
    body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # from the first to the last byte of a body
    # all requests
    waiting: int = 128  # searches in the queue
    running: int = 64  # searches that take turns
    batch: int = 128  # canvases per forward pass
    unread: int = 8  # steps a search may be ahead of its reader before it pauses
    verifier_seconds: float = 10.0  # one step of a registered verifier
    verifier_calls: int = 4  # registered verifiers at work at once, hung ones included
    stall_seconds: float = 120.0  # one round of the engine before /health reports it
    # connections
    connections: int = 512
    header_seconds: float = 10.0  # from the first byte of a request to the end of its header
    idle_seconds: float = 30.0  # between requests
    send_seconds: float = 20.0  # without the client reading anything

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise SettingsError(
                    f"limit {field.name}={value!r} is not allowed; give a number above 0"
                )

    def check(self, settings: Settings, model: Model) -> None:
        """Refuse settings beyond a limit, or that do not fit together."""
        asked = {
            "length": ("gen_length", settings.gen_length),
            "children": ("particles × branching", batch_size(settings)),
            "steps": ("steps", settings.steps),
            "nfe": ("the forward passes that it can need", most_nfe(settings, model)),
        }
        for limit, (name, value) in asked.items():
            most = getattr(self, limit)
            if value > most:
                raise SettingsError(
                    f"{name}={value} is more than this server's limit of {most}; give a smaller value"
                )

    def check_infill(self, settings: Settings, template: Template) -> None:
        """Refuse holes beyond a limit; every combination of their lengths is a search."""
        longer = -(-template.most // settings.gen_length)
        once = settings.most_nfe * (1 if settings.method.budget else template.count * longer)
        for what, value, most in (
            ("the holes of infill have {} tokens", template.most, self.length),
            ("infill can need {} forward passes", once, self.nfe),
        ):
            if value > most:
                raise SettingsError(
                    f"{what.format(value)}, more than this server's limit of {most}; use shorter "
                    "holes or fewer lengths"
                )

    def check_prompt(self, model: Model, characters: int) -> None:
        """Refuse a prompt that cannot fit before anyone spends time on tokenising it."""
        most = self.characters * model.denoiser.context
        if characters > most:
            raise PromptError(
                f"the prompt has {characters} characters, but {model.name} reads at most "
                f"{model.denoiser.context} tokens; shorten the prompt to at most {most} characters"
            )
