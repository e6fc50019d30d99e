"""What comes from outside the package: files of JSON lines, and parts that other packages add.

Both are read in one place, so that every mistake in them is reported in the same words.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from s3dlm.errors import RecordError, SettingsError, unknown_name

LONGEST_LINE = 1 << 26  # bytes: no line of a file that this package writes comes near

T = TypeVar("T")


def read_json_lines(
    path: str | Path,
    *,
    remedy: str = "correct the file or give another one",
    drop_partial: bool = False,
    unseal: Callable[[bytes], bytes] = bytes,
    longest: int = LONGEST_LINE,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines with their line numbers; blank lines are skipped.

    A name that ends in `.gz` is decompressed line by line. `drop_partial` leaves out a last line
    without a line feed, which is what a kill leaves of a file that was being written. `unseal` takes
    a line as it stands and returns its JSON; it raises ValueError for a line that is damaged.
    """
    try:
        with opened(path) as plain:
            file: Any = gzip.GzipFile(fileobj=plain) if Path(path).suffix == ".gz" else plain
            for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
                if drop_partial and len(line) <= longest and not line.endswith(b"\n"):
                    return
                if line.strip():
                    place = f"{path}, line {number},"
                    yield number, _parse(line.rstrip(b"\n"), place, unseal, remedy, longest)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordError(f"{path} cannot be read: {why}; {remedy}") from error


def opened(path: str | Path) -> BinaryIO:
    """A file to be read; a pipe to which nobody writes is empty, and not waited for."""

    def open_at_once(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
        os.set_blocking(descriptor, True)
        return descriptor

    return open(path, "rb", opener=open_at_once)


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """What cannot be written is told in one line."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"{path} cannot be written: {error.strerror or error}; give another path, or free some "
            "space, and repeat the command"
        ) from error


def _parse(
    line: bytes, place: str, unseal: Callable[[bytes], bytes], remedy: str, longest: int
) -> dict[str, Any]:
    if len(line) > longest:
        raise RecordError(f"{place} has more than {longest:,} bytes; {remedy}")
    try:
        row = json.loads(unseal(line).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise RecordError(f"{place} cannot be read: {why}; {remedy}") from error
    if not isinstance(row, dict):
        raise RecordError(f"{place} is a JSON {type(row).__name__}, not an object; {remedy}")
    return row


class Registry(Mapping[str, T]):
    """Everything of a kind that has a name: what is registered, and what installed packages offer under
    an entry-point group, which is loaded when it is looked up.

    Args:
        what: The kind, in errors.
        group: The entry-point group.
        kind: The class of its values.

    Attributes:
        files: Where a file is a name, too: what reads such a name, by what marks it, as in `.jsonl`.
    """

    def __init__(self, what: str, group: str, kind: type) -> None:
        self.what, self.group, self.kind = what, group, kind
        self.files: dict[str, Callable[[str], T]] = {}
        self._known: dict[str, T] = {}

    def register(self, name: str, value: T, *, replace: bool = False) -> T:
        """Make a value known by name; a name that exists is refused unless it is replaced."""
        if not isinstance(value, self.kind):
            given = f"register_{self.what}({name!r}, …) got a {type(value).__name__}"
            raise SettingsError(f"{given}; give a s3dlm.{self.kind.__name__}")
        if not isinstance(name, str) or not name.isidentifier():
            raise SettingsError(
                f"{self.what} name {name!r} is not allowed; use letters, digits and _"
            )
        if name in self._known and not replace:
            again = "choose another name, or give replace=True"
            raise SettingsError(f"the {self.what} {name!r} exists; {again}")
        self._known[name] = value
        return value

    def find(self, name: str) -> T:
        """The value of a name, or an error that says which there are."""
        if name in self._known:
            return self._known[name]
        if name in (offered := find_entry_points(self.group)):
            self._known[name] = load_entry_point(offered[name], self.kind)
            return self._known[name]
        if (read := self._reader(name)) is not None:
            return read(name)
        raise SettingsError(unknown_name(self.what, name, self))

    def _reader(self, name: str) -> Callable[[str], T] | None:
        return next((read for mark, read in self.files.items() if mark in name), None)

    def from_python(self, name: str) -> T:
        """The value that `FILE.py:NAME` names: the file is run once."""
        path, _, attribute = name.rpartition(":")
        value = load_from_file(Path(path), attribute)
        if not isinstance(value, self.kind):
            raise SettingsError(
                f"{self.what}={name!r}: {path} has no {attribute} that is a {self.what}"
            )
        self._known[name] = value  # type: ignore[assignment]  # `kind` is T, as far as can be checked
        return self._known[name]

    def __getitem__(self, name: str) -> T:
        try:
            return self.find(name)
        except SettingsError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        known = name in self._known or name in find_entry_points(self.group)
        return known or self._reader(name) is not None

    def __iter__(self) -> Iterator[str]:
        offered = find_entry_points(self.group)  # whether or not they have been loaded
        return iter([*(name for name in self._known if name not in offered), *offered])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def load_from_file(path: Path, name: str) -> Any:
    """What a file of Python that the user names calls by a name; it may import its neighbours."""
    spec = spec_from_file_location(f"s3dlm_own_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingsError(f"there is no file {path}; give FILE.py:NAME")
    module = module_from_spec(spec)
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # somebody's own code, broken in any way
        raise SettingsError(
            f"{path} raises {type(error).__name__}: {error} when it is imported; correct the file"
        ) from error
    if not hasattr(module, name):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise SettingsError(f"{path}: {unknown_name('name', name, names)}")
    return getattr(module, name)


@cache
def find_entry_points(group: str) -> dict[str, EntryPoint]:
    """The parts of a group that installed packages offer, by name and none of them loaded."""
    first = {entry.name: entry for entry in reversed([*entry_points(group=group)])}
    return dict(sorted(first.items()))


def load_entry_point(entry: EntryPoint, kind: type[T]) -> T:
    """The object that an entry point names, which must be of a kind (`object` allows any)."""
    place = f"entry point {entry.name!r} ({entry.value}) of the group {entry.group!r}"
    try:
        loaded = entry.load()
    except Exception as error:  # an installed package may be broken in any way
        raise SettingsError(
            f"{place} does not load: {type(error).__name__}: {error}; repair its package or "
            "uninstall it"
        ) from error
    if not isinstance(loaded, kind):
        raise SettingsError(
            f"{place} is a {type(loaded).__name__}; it must be a {kind.__module__}.{kind.__name__}"
        )
    return loaded
