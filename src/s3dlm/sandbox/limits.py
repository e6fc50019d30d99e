"""What a program in the sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass

from s3dlm.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one tested program; time is wall-clock time, start-up not counted."""

    seconds: float = 3.0
    memory_mb: int = 512
    threads: int = 16  # processes cannot be started at all
    open_files: int = 32
    output_bytes: int = 65_536  # of all that the program returns; what it prints is thrown away

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 600:
            raise SettingsError(f"seconds={self.seconds} is not allowed; give 0 < seconds <= 600")
        for name, least in (
            ("memory_mb", 64),
            ("threads", 1),
            ("open_files", 8),
            ("output_bytes", 256),
        ):
            if getattr(self, name) < least:
                raise SettingsError(
                    f"{name}={getattr(self, name)} is not allowed; give at least {least}"
                )
