"""Confinement of a process: namespaces, a read-only root, Landlock, limits and seccomp, by ctypes.

Two moments. `Confinement` is made once, in the launcher: it leaves the network, moves into a root
that holds the standard library alone, and reads the Landlock rules. `Confinement.enter` runs in every
process that will execute untrusted code, and is not reversible. Whatever a kernel does not offer is
noted in `Confinement.off`; whether that is acceptable is decided by the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from s3dlm.extras.code.sandbox.exchange import SandboxLimits

MECHANISMS = ("namespaces", "landlock", "seccomp")

_NEW_NS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_PDEATHSIG, _SET_DUMPABLE, _GET_SECCOMP, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 4, 21, 22, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every machine
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NOBODY, _FIRST_UID = 65534, 1_600_000_000
_PACKAGES = ("site-packages", "dist-packages")  # hidden: benchmarks with their tests live there


def _call(name: str, *args: object, what: str = "") -> int:
    """A function of the C library; where it fails, the error says what it was called for."""
    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what or name}: {os.strerror(number)}")
    return result


def _library() -> list[str]:
    """The folders of the standard library; the interpreter was started without packages."""
    return sorted({os.path.realpath(path) for path in sys.path if os.path.isdir(path)})


class Confinement:
    """What confines the tested code, prepared as far as the kernel allows."""

    def __init__(self, limits: SandboxLimits, folder: str, without: Collection[str]) -> None:
        """Do what all tested programs share; `folder` is empty and ours."""
        self.limits, self.rules = limits, -1  # the descriptor of the Landlock rules
        self.off = dict.fromkeys(without, "switched off")  # mechanism: why it is off
        if sys.platform != "linux":
            self.off = dict.fromkeys(MECHANISMS, f"{sys.platform} does not have it")
        os.chdir(folder)
        steps: tuple[Callable[[], None], ...]
        steps = (lambda: _new_root(folder), self._read_rules, _check_seccomp)
        for name, step in zip(MECHANISMS, steps, strict=True):
            if name not in self.off:
                try:
                    step()
                except (OSError, AttributeError) as error:  # no such call in this C library
                    self.off[name] = str(error)

    def _read_rules(self) -> None:
        """Landlock rules that allow reading the standard library and nothing else."""
        version = _call("syscall", _LANDLOCK_CREATE, None, 0, 1, what="landlock")
        rights = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
        handled = ctypes.byref(ctypes.c_uint64(rights))
        rules = _call("syscall", _LANDLOCK_CREATE, handled, 8, 0, what="landlock")
        for path, allowed in _readable(_library()):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = allowed.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
            _call("syscall", _LANDLOCK_ADD, rules, 1, rule, 0, what="landlock")
            os.close(place)
        self.rules = rules

    def new_processes(self) -> None:
        """Give the next child a process namespace of its own: when it dies, all in it die."""
        if "namespaces" not in self.off:
            _call("unshare", _NEW_PID)

    def enter(self, identity: int) -> None:
        """Lock this process in, for ever; `identity` is a number no other running program has."""
        if sys.platform == "linux":
            _drop_privileges(_FIRST_UID + identity)
            for option, value in ((_SET_PDEATHSIG, 9), (_SET_DUMPABLE, 0), (_SET_NO_NEW_PRIVS, 1)):
                _call("prctl", option, value, 0, 0, 0)
        _set_limits(self.limits)
        if "landlock" not in self.off:
            _call("syscall", _LANDLOCK_RESTRICT, self.rules, 0, what="landlock")
            os.close(self.rules)
        if "seccomp" not in self.off:
            code = ctypes.create_string_buffer(filter_program(platform.machine()))
            program = struct.pack("HP", len(code) // 8, ctypes.addressof(code))
            _call("prctl", _SET_SECCOMP, 2, program, 0, 0, what="seccomp")


def _new_root(folder: str) -> None:
    """Leave network and file system: the new root has the standard library, all read-only.

    A child tries it first, because a launcher that got only half-way could not go back.
    """
    if platform.machine() not in _PIVOT_ROOT:
        raise OSError(f"the system calls of {platform.machine()} are not known")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _unshare()
            _furnish(folder)
            _call("unshare", _NEW_PID)
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
    _unshare()
    _furnish(folder)


def _unshare() -> None:
    """New namespaces for all but processes; a user namespace gives the right to it to anybody."""
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_NET | (_NEW_USER if uid else 0))
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
        flags = os.statvfs(path).f_flag  # some may not be taken away in a user namespace
        kept = (flags & (8 | 1024 | 2048)) | ((1 << 21) if flags & 4096 else 0)
        _mount(None, inside, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | kept)
    os.makedirs(f"{folder}/empty")
    os.chdir(folder)
    _call("syscall", _PIVOT_ROOT[platform.machine()], b".", b".", what="pivot_root")
    _call("umount2", b".", _DETACH)
    _mount(None, "/", None, _REMOUNT | _RDONLY | _NOSUID | _NODEV, "size=1m,mode=755")
    os.chdir("/empty")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    names = [None if name is None else os.fsencode(name) for name in (source, target, kind)]
    _call("mount", *names, ctypes.c_ulong(flags), data.encode() or None, what=f"mount {target}")


def _readable(library: list[str]) -> Iterator[tuple[str, int]]:
    yield ".", _READ_DIR  # the empty folder
    for folder in library:
        yield folder, _READ_DIR
        for entry in os.scandir(folder):
            if entry.name not in _PACKAGES and os.path.exists(entry.path):
                yield entry.path, _READ_FILE | (_READ_DIR if entry.is_dir() else 0)


def _check_seccomp() -> None:
    if platform.machine() not in _TABLES:
        raise OSError(f"the system calls of {platform.machine()} are not known")
    _call("prctl", _GET_SECCOMP, 0, 0, 0, 0, what="seccomp")


def _drop_privileges(uid: int) -> None:
    """A user that owns nothing, and no capabilities in any namespace."""
    if os.geteuid() == 0:  # else there is a user namespace, or nothing to give up
        os.setgroups([])
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:  # a container may map only the usual 65536 users
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def _set_limits(limits: SandboxLimits) -> None:
    import resource

    for name, value in (
        ("RLIMIT_AS", limits.memory_mb * 2**20),
        ("RLIMIT_CPU", ceil(limits.seconds) + 1),
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


# The seccomp filter. It lists what is allowed, so that a call a newer kernel adds is refused.
# Everything else fails with EPERM: no socket, no new process, no program, no signal, no new name in
# the file system. `clone` may only start threads, and calls that could act on others are narrowed.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_CLONE_THREAD = 0x10000
_X32 = 0x40000000  # numbers from here on belong to x86's x32 calls, which nobody needs

# The commands of fcntl and ioctl that Python uses on its own descriptors; none makes the kernel
# send signals.
_FCNTL = (0, 1, 2, 3, 4, 1030)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)


@dataclass(frozen=True, slots=True)
class _SyscallTable:
    """The numbers of one processor architecture."""

    arch: int
    plain: tuple[int, ...]  # allowed whatever the arguments
    chosen: Mapping[int, tuple[int, tuple[int, ...]]]  # number: (argument, allowed values)
    clone: int


_TABLES = {
    "x86_64": _SyscallTable(
        arch=0xC000003E,
        plain=(
            *range(16), 17, 19, 20, 21, 22, 23, 24, 25, 28, 32, 33, 34, 35, 36, 37, 38, 39, 53, 60,
            61, 63, 78, 79, 80, 89, 95, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 115, 127, 131,
            158, 186, 201, 202, 204, 213, 217, 218, 219, 228, 229, 230, 231, 232, 233, 257, 262, 267,
            269, 270, 271, 273, 281, 290, 291, 292, 293, 318, 324, 332, 334, 436, 439, 449,
        ),
        chosen={72: (1, _FCNTL), 16: (1, _IOCTL), 302: (0, (0,))},
        clone=56,
    ),
    "aarch64": _SyscallTable(
        arch=0xC00000B7,
        plain=(
            17, 19, 20, 21, 22, 23, 24, 48, 49, 56, 57, 59, 61, 62, 63, 64, 65, 66, 67, 72, 73, 78,
            79, 80, 93, 94, 96, 98, 99, 101, 102, 103, 113, 114, 115, 123, 124, 128, 132, 134, 135,
            136, 139, 153, 158, 160, 165, 166, 169, 172, 173, 174, 175, 176, 177, 178, 179, 199, 214,
            215, 216, 222, 226, 233, 260, 278, 283, 291, 293, 436, 439, 449,
        ),
        chosen={25: (1, _FCNTL), 29: (1, _IOCTL), 261: (0, (0,))},
        clone=220,
    ),
}  # fmt: skip
_CLONE3 = 435  # its flags are behind a pointer; "not implemented" makes libc use clone


def filter_program(machine: str) -> bytes:
    """The filter of a kind of machine as an array of `struct sock_filter`."""
    table = _TABLES[machine]
    refuse = 0x00050000 | errno.EPERM
    code = [
        _op(_LOAD, _ARCH), _op(_EQUAL, table.arch, 1, 0), _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER), _op(_AT_LEAST, _X32, 0, 1), _op(_RETURN, _KILL),
        _op(_EQUAL, _CLONE3, 0, 1), _op(_RETURN, 0x00050000 | errno.ENOSYS),
        _op(_EQUAL, table.clone, 0, 4), _op(_LOAD, _ARGUMENTS),
        _op(_ANY_BIT, _CLONE_THREAD, 0, 1), _op(_RETURN, _ALLOW), _op(_RETURN, refuse),
    ]  # fmt: skip
    for number in table.plain:
        code += [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    for number, (argument, values) in table.chosen.items():
        code += [_op(_EQUAL, number, 0, 2 + 2 * len(values)), _op(_LOAD, _ARGUMENTS + 8 * argument)]
        for value in values:
            code += [_op(_EQUAL, value, 0, 1), _op(_RETURN, _ALLOW)]
        code.append(_op(_RETURN, refuse))
    return b"".join([*code, _op(_RETURN, refuse)])


def _op(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, constant)
