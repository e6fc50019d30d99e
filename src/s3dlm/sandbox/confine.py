"""The walls of the sandbox: namespaces, a read-only root, Landlock, limits and seccomp, by ctypes.

Two moments. `Walls.build` runs once, in the launcher: it leaves the network, moves into a root that
holds the standard library alone, and reads the Landlock rules. `Walls.enter` runs in every process
that will execute untrusted code, and is not reversible. Whatever a kernel does not offer is noted
in `Walls.off`; whether that is acceptable is decided by the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import ceil

from s3dlm.sandbox import syscalls
from s3dlm.sandbox.limits import Limits

_NEW_NS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 4, 22, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every machine
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NOBODY, _FIRST_UID = 65534, 1_600_000_000
_PACKAGES = ("site-packages", "dist-packages")  # hidden: benchmarks with their tests live there


MECHANISMS = ("namespaces", "landlock", "seccomp")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _library() -> list[str]:
    """The folders of the standard library; the interpreter was started without packages."""
    return sorted({os.path.realpath(path) for path in sys.path if os.path.isdir(path)})


@dataclass(slots=True)
class Walls:
    """What holds the tested code, built as far as the kernel allows."""

    limits: Limits
    off: dict[str, str] = field(default_factory=dict)  # mechanism: why it is off
    rules: int = -1  # the descriptor of the Landlock rules
    root: bool = False  # whether privileges have to be given up

    @classmethod
    def build(cls, limits: Limits, folder: str, without: Collection[str]) -> Walls:
        """Raise the walls that all tested programs share; `folder` is empty and ours."""
        walls = cls(limits, dict.fromkeys(without, "switched off"))
        if sys.platform != "linux":
            walls.off = dict.fromkeys(MECHANISMS, f"{sys.platform} does not have it")
        walls.root = hasattr(os, "geteuid") and os.geteuid() == 0
        os.chdir(folder)
        steps: dict[str, Callable[[], None]] = {
            "namespaces": lambda: _new_root(folder),
            "landlock": walls._read_rules,
            "seccomp": _known_machine,
        }
        for name, step in steps.items():
            if name not in walls.off:
                try:
                    step()
                except (OSError, AttributeError) as error:  # no such call in this C library
                    walls.off[name] = str(error)
        return walls

    def _read_rules(self) -> None:
        self.rules = _landlock_rules(_library())

    def new_processes(self) -> None:
        """Give the next child a process namespace of its own: when it dies, all in it die."""
        if "namespaces" not in self.off:
            _libc_check("unshare", _NEW_PID)

    def enter(self, identity: int) -> None:
        """Lock this process in, for ever; `identity` is a number no other running program has."""
        libc = _libc()
        if sys.platform == "linux":
            _drop_privileges(libc, self.root, _FIRST_UID + identity)
            for option, value in ((_SET_PDEATHSIG, 9), (_SET_DUMPABLE, 0), (_SET_NO_NEW_PRIVS, 1)):
                _check(libc.prctl(option, value, 0, 0, 0), "prctl")
        _set_limits(self.limits)
        if "landlock" not in self.off:
            _check(libc.syscall(_LANDLOCK_RESTRICT, self.rules, 0), "landlock")
            os.close(self.rules)
        if "seccomp" not in self.off:
            _filter_calls(libc)


def _new_root(folder: str) -> None:
    """Leave network and file system: the new root has the standard library, all read-only."""
    if platform.machine() not in _PIVOT_ROOT:
        raise OSError(f"the system calls of {platform.machine()} are not known")

    def steps() -> None:
        _leave()
        _furnish(folder)

    def trial() -> None:
        steps()
        _libc_check("unshare", _NEW_PID)

    _try_in_a_child(trial)
    steps()


def _libc_check(name: str, *args: object) -> int:
    return _check(getattr(_libc(), name)(*args), name)


def _leave() -> None:
    """New namespaces for all but processes; a user namespace gives the right to it to anybody."""
    uid, gid = os.geteuid(), os.getegid()
    _libc_check("unshare", _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_NET | (_NEW_USER if uid else 0))
    if uid:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"{_NOBODY} {uid} 1"), ("gid_map", f"{_NOBODY} {gid} 1"),
        ):  # fmt: skip
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _furnish(folder: str) -> None:
    """Make `folder` the root: the folders of the standard library without packages, and /empty."""
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in _library():
        inside = folder + path
        os.makedirs(inside, exist_ok=True)
        _mount(path, inside, None, _BIND)
        for name in _PACKAGES:
            if os.path.isdir(f"{inside}/{name}"):
                _mount("tmpfs", f"{inside}/{name}", "tmpfs", _RDONLY, "size=4k,mode=755")
        _mount(None, inside, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | _kept(path))
    os.makedirs(f"{folder}/empty")
    os.chdir(folder)
    _libc_check("syscall", _PIVOT_ROOT[platform.machine()], b".", b".")
    _libc_check("umount2", b".", _DETACH)
    _mount(None, "/", None, _REMOUNT | _RDONLY | _NOSUID | _NODEV, "size=1m,mode=755")
    os.chdir("/empty")


def _try_in_a_child(steps: Callable[[], None]) -> None:
    """A launcher that got only half-way could not go back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            steps()
        except BaseException as error:
            os.write(writer, (str(error) or type(error).__name__).encode())
        finally:
            os._exit(0)
    os.close(writer)
    problem = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    if problem:
        raise OSError(problem)


def _kept(path: str) -> int:
    """Mount flags that a user namespace may not take away."""
    flags = os.statvfs(path).f_flag
    return (flags & (8 | 1024 | 2048)) | ((1 << 21) if flags & 4096 else 0)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    args = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_libc().mount(*args, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def _landlock_rules(library: list[str]) -> int:
    """Rules that allow reading the standard library and nothing else."""
    libc = _libc()
    version = _check(libc.syscall(_LANDLOCK_CREATE, None, 0, 1), "landlock")
    rights = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    rules = _check(
        libc.syscall(_LANDLOCK_CREATE, ctypes.byref(ctypes.c_uint64(rights)), 8, 0), "landlock"
    )
    for path, allowed in _readable(library):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = allowed.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        _check(libc.syscall(_LANDLOCK_ADD, rules, 1, rule, 0), "landlock")
        os.close(place)
    return rules


def _readable(library: list[str]) -> Iterator[tuple[str, int]]:
    yield ".", _READ_DIR  # the empty folder
    for folder in library:
        yield folder, _READ_DIR
        for entry in os.scandir(folder):
            if entry.name not in _PACKAGES and os.path.exists(entry.path):
                yield entry.path, _READ_FILE | (_READ_DIR if entry.is_dir() else 0)


def _known_machine() -> None:
    if platform.machine() not in syscalls.TABLES:
        raise OSError(f"the system calls of {platform.machine()} are not known")
    _check(_libc().prctl(21, 0, 0, 0, 0), "seccomp")  # PR_GET_SECCOMP: is it there at all?


def _drop_privileges(libc: ctypes.CDLL, root: bool, uid: int) -> None:
    """A user that owns nothing, and no capabilities in any namespace."""
    if root:
        os.setgroups([])
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:  # a container may map only the usual 65536 users
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, nothing), "capset")


def _set_limits(limits: Limits) -> None:
    import resource

    seconds = ceil(limits.seconds) + 1
    for name, value in (
        ("RLIMIT_AS", limits.memory_mb * 2**20),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_NOFILE", limits.open_files),
        ("RLIMIT_NPROC", limits.threads),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_MEMLOCK", 0),
        ("RLIMIT_MSGQUEUE", 0),
    ):
        if hasattr(resource, name):
            with contextlib.suppress(ValueError, OSError):  # macOS cannot limit the address space
                resource.setrlimit(getattr(resource, name), (value, value))


def _filter_calls(libc: ctypes.CDLL) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    code = syscalls.program(syscalls.TABLES[platform.machine()])
    program = Program(len(code) // 8, code)
    _check(libc.prctl(_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")
