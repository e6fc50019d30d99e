"""A verifier of one's own: `FILE.py:NAME` on the command line, a function in Python.

Settings, manifests and records know it by a name that holds a hash of its source, such as
`mine.py:score@1a2b3c4d5e6f`, so a resumed run notices that it has changed. Such a name stands for
something only in a process whose user gave the file or the function: no file of settings, no recorded
run and no request can have code loaded by naming it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path

from s3dlm.errors import SettingsError
from s3dlm.inputs import load_from_file
from s3dlm.verifier.base import Verifier, adapt
from s3dlm.verifier.names import OWN

_FILES: dict[str, str] = {}  # the files that were given in this process, by the names they got


def is_file(verifier: str) -> bool:
    """Whether a text is written like `FILE.py:NAME`."""
    return verifier.rpartition(":")[0].endswith(".py")


def from_file(spelling: str) -> str:
    """Load `FILE.py:NAME` (a function, a verifier, or a class of one) and return its name here."""
    file, _, name = spelling.rpartition(":")
    path = Path(file)
    try:
        digest = _digest(path.read_bytes())
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}; write FILE.py:NAME"
        ) from error
    known_as, place = f"{path.name}:{name}@{digest}", f"{path.resolve()}:{name}"
    if _FILES.get(known_as) != place:
        OWN[known_as] = _judge(path, name)
        _FILES[known_as] = place
    return known_as


def from_object(judge: object) -> str:
    """The name here of a function or another object that serves as a verifier in this process.

    The hash is that of its source text, as far as there is one; what else it reads is not seen.
    """
    made, thing = adapt(judge), judge if inspect.isroutine(judge) else type(judge)
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        source = "" if code is None else f"{code.co_code!r} {code.co_consts!r} {code.co_names!r}"
    known_as = f"{getattr(thing, '__name__', 'verifier')}@{_digest(source.encode())}"
    OWN[known_as] = made
    return known_as


def given() -> tuple[str, ...]:
    """The files of this process, for its workers: each calls `take` with them."""
    return tuple(_FILES.values())


def take(files: Iterable[str]) -> None:
    """Load the files of the process that started this one."""
    for spelling in files:
        from_file(spelling)


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:12]


def _judge(path: Path, name: str) -> Verifier:
    judge = load_from_file(path, name)
    try:
        judge = judge() if isinstance(judge, type) else judge
    except Exception as error:
        raise SettingsError(
            f"{path} raises {type(error).__name__}: {error} when {name} is built without arguments; "
            "correct the file"
        ) from error
    adapted = adapt(judge)
    if inspect.isroutine(judge):
        try:
            inspect.signature(judge).bind("", "", None)
        except TypeError as error:
            raise SettingsError(
                f"{path}: {name} must take (question, text, confidence): {error}"
            ) from error
    return adapted
