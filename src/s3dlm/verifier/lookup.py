"""From a name to a verifier: a task and profile, another package's entry point, or a TOML file."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from s3dlm.errors import SettingsError, VerifierError, unknown_name
from s3dlm.verifier.base import FunctionVerifier, Verifier
from s3dlm.verifier.code import CodeVerifier
from s3dlm.verifier.composite import from_profile, from_toml
from s3dlm.verifier.plus import plus
from s3dlm.verifier.profiles import PAPER

CODE = "code"  # the verifier of code tasks; it has no weights by profile
GROUP = "s3dlm.verifiers"  # the entry-point group through which other packages add verifiers


def _paper(task: str) -> Verifier:
    return from_profile(PAPER[task])


PROFILES: dict[str, Callable[[str], Verifier]] = {"paper": _paper, "plus": plus}


def for_task(task: str, profile: str = "paper") -> Verifier:
    """The verifier of a task, by a named profile or by the weights in a TOML file."""
    if task == CODE:
        return _code()
    if task not in PAPER:
        raise SettingsError(unknown_name("task", task, PAPER))
    if _is_toml(profile):
        return from_toml(profile, task)
    if profile not in PROFILES:
        raise SettingsError(unknown_name("profile", profile, [*PROFILES, "FILE.toml"]))
    return _built(task, profile)


@lru_cache(maxsize=1)
def _code() -> Verifier:
    """One for the process: it remembers what it ran."""
    return CodeVerifier()


@lru_cache(maxsize=64)
def _built(task: str, profile: str) -> Verifier:
    return PROFILES[profile](task)


def as_verifier(
    verifier: Verifier | Callable[[str, str, float | None], float] | str,
) -> Verifier:
    """Whatever a user may hand over as a verifier: one, a function, a name or a TOML file."""
    if isinstance(verifier, str):
        return _by_name(verifier)
    if isinstance(verifier, Verifier) and not isinstance(verifier, type):
        return verifier
    if callable(verifier):
        return FunctionVerifier(verifier, getattr(verifier, "__name__", "custom"))
    raise SettingsError(
        f"verifier={verifier!r} is no verifier; give a function (prompt, text, confidence) -> float, "
        "an object with such a method `score`, the name of one, or a TOML file"
    )


def _by_name(name: str) -> Verifier:
    if _is_toml(name):
        return from_toml(name)
    if name in PAPER or name == CODE:
        return for_task(name)
    for entry in entry_points(group=GROUP, name=name):
        try:
            loaded = entry.load()
        except Exception as error:
            raise VerifierError(
                f"verifier {name!r} ({entry.value}) does not load: {error}"
            ) from error
        if isinstance(loaded, type):
            loaded = loaded()
        return as_verifier(loaded)
    installed = [entry.name for entry in entry_points(group=GROUP)]
    raise SettingsError(unknown_name("verifier", name, [*PAPER, *installed, "FILE.toml"]))


def _is_toml(name: str) -> bool:
    return Path(name).suffix == ".toml"
