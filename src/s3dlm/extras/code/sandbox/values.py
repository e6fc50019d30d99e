"""Values as plain JSON, so that what enters and leaves the sandbox is data and nothing else.

An object of the tested code could claim to be equal to everything. Only built-in types are copied;
anything else crosses as a reference to an object that stays in the sandbox, and equals nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_SAFE = 2**53  # larger integers travel as hexadecimal, which has no limit on the number of digits
_KINDS: dict[str, Callable[..., object]] = {
    "int": lambda digits: int(digits, 16), "bytes": bytes.fromhex, "tuple": tuple, "set": set,
    "frozenset": frozenset, "dict": dict, "complex": lambda parts: complex(*parts),
}  # fmt: skip


def encode(value: object, refer: Callable[[object], int] | None = None) -> Json:
    """A value as JSON; dictionaries keep their order, and `refer` numbers what is no plain data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if abs(plain) < _SAFE else {"int": hex(plain)}
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": value.hex()}
    if isinstance(value, list):
        return [encode(item, refer) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, refer) for item in tuple.__iter__(value)]}
    if isinstance(value, (set, frozenset)):
        name = "set" if isinstance(value, set) else "frozenset"
        return {name: sorted((encode(item, refer) for item in value), key=json.dumps)}
    if isinstance(value, dict):
        return {"dict": [[encode(k, refer), encode(v, refer)] for k, v in dict.items(value)]}
    if refer is None:
        raise TypeError(f"a value of type {type(value).__name__} is not plain data")
    return {"ref": refer(value)}


def decode(data: Json, resolve: Callable[[int], object]) -> object:
    """The value of an encoding; a reference is whatever `resolve` makes of its number."""
    if isinstance(data, list):
        return [decode(item, resolve) for item in data]
    if not isinstance(data, dict):
        return data
    ((name, content),) = data.items()
    if name == "ref" and isinstance(content, int):
        return resolve(content)
    plain = [decode(item, resolve) for item in content] if isinstance(content, list) else content
    return _KINDS[name](plain)


def equal_values(left: Json, right: Json) -> bool:
    """Whether two encodings stand for equal values; floats may differ in the last digits."""
    if isinstance(left, dict) and isinstance(right, dict):
        if isinstance(left.get("dict"), list) and isinstance(right.get("dict"), list):
            return equal_values(*(sorted(data["dict"], key=json.dumps) for data in (left, right)))  # type: ignore[arg-type]
        return left.keys() == right.keys() and all(equal_values(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal_values, left, right))
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right or math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    return left == right
