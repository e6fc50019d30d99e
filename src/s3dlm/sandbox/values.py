"""Values as plain JSON, so that what crosses the wall of the sandbox is data and nothing else.

An object of the tested code could claim to be equal to everything. Only built-in types are copied;
anything else crosses as a reference to an object that stays behind the wall, and equals nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Refer = Callable[[object], int]
Resolve = Callable[[int], object]

_SAFE = 2**53  # larger integers travel as hexadecimal, which has no limit on the number of digits


def encode(value: object, refer: Refer | None = None) -> Json:
    """A value as JSON; dictionaries keep their order."""
    if value is None or isinstance(value, (bool, str)):
        return value if not isinstance(value, str) else str.__str__(value)
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if abs(plain) < _SAFE else {"int": hex(plain)}
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": value.hex()}
    return _encode_container(value, refer)


def _encode_container(value: object, refer: Refer | None) -> Json:
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


def same(one: Json, other: Json) -> bool:
    """Whether two encodings stand for equal values; floats may differ in the last digits."""
    if isinstance(one, dict) and isinstance(other, dict):
        if "dict" in one and "dict" in other:
            one, other = _in_order(one), _in_order(other)
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return one == other


def _in_order(data: dict[str, Json]) -> dict[str, Json]:
    pairs = data["dict"]
    return {"dict": sorted(pairs, key=json.dumps) if isinstance(pairs, list) else pairs}


def decode(data: Json, resolve: Resolve) -> object:
    """The value of an encoding; a reference is whatever `resolve` makes of its number."""
    if isinstance(data, list):
        return [decode(item, resolve) for item in data]
    if not isinstance(data, dict):
        return data
    ((name, content),) = data.items()
    if name == "ref" and isinstance(content, int):
        return resolve(content)
    if isinstance(content, str):
        return int(content, 16) if name == "int" else bytes.fromhex(content)
    assert isinstance(content, list), f"{name!r} is not a known kind of value"
    items = [decode(item, resolve) for item in content]
    make: dict[str, Callable[[list[object]], object]] = {
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
        "dict": lambda pairs: {pair[0]: pair[1] for pair in pairs},  # type: ignore[index]
        "complex": lambda parts: complex(*parts),  # type: ignore[call-overload]
    }
    return make[name](items)
