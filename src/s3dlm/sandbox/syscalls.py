"""The seccomp filter: which system calls the tested code may make, as a BPF program.

A list of what is allowed, not of what is forbidden, so that a call a newer kernel adds is refused.
Everything else fails with EPERM: no socket, no new process, no program, no signal, no new name in
the file system. `clone` may only start threads, and calls that could act on others are narrowed.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

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
class SyscallTable:
    """The numbers of one processor architecture."""

    arch: int
    plain: tuple[int, ...]  # allowed whatever the arguments
    chosen: Mapping[int, tuple[int, tuple[int, ...]]]  # number: (argument, allowed values)
    clone: int


TABLES = {
    "x86_64": SyscallTable(
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
    "aarch64": SyscallTable(
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


def program(machine: str) -> bytes:
    """The filter of a kind of machine as an array of `struct sock_filter`."""
    table = TABLES[machine]
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
