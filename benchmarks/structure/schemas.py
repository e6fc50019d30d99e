"""Random JSON schemas: nested objects, arrays, enums, bounded numbers, patterns and texts of any script."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Maker = Callable[[random.Random, int], dict[str, Any]]
NAMES = ("name", "count", "tags", "größe", "色", "a b", 'q"q', "price", "kind", "items", "ok", "π")
WORDS = (
    "red",
    "green",
    "blau",
    "東京",
    "naïve",
    "\\",
    'say "hi"',
    "🙂",
    "",
    "line\nbreak",
    "x" * 12,
)
PATTERNS = (
    "^[A-Z]{2}-[0-9]{3}$",
    "^(ja|nein)$",
    "^[a-f0-9]+$",
    "^\\d{4}-\\d{2}$",
    "^[a-zA-Z0-9]+#[0-9]+$",
    "[0-9]+!$",
    '^[^"]*"\\w+"$',
)


def schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema of at most so many levels that has an instance."""
    leaves = (_text, _number, _integer, _enum, _simple)
    inner = (_object, _object, _array, _either) if depth else ()
    make: Maker = rng.choice((*leaves, *inner, *inner))
    return make(rng, depth)


def _text(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.choice((0, 0, 1, 5))
    bounds = [{}, {"minLength": least}, {"minLength": least, "maxLength": least + rng.randrange(9)}]
    return {"type": "string", **rng.choice([*bounds, {"pattern": rng.choice(PATTERNS)}])}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.choice((-100, -1.5, 0, 0.25, 7))
    return rng.choice(
        [
            {"type": "number"},
            {"type": "number", "minimum": low, "maximum": low + rng.choice((1, 50))},
        ]
    )


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(-50, 200)
    bounds = [
        {},
        {"minimum": low},
        {"exclusiveMinimum": low, "maximum": low + 1 + rng.randrange(100)},
    ]
    return {"type": "integer", **rng.choice(bounds)}


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    values: list[Any] = [*rng.sample(WORDS, rng.randrange(1, 5)), rng.choice((None, 3, True, 2.5))]
    return rng.choice([{"enum": values}, {"const": rng.choice(values)}])


def _simple(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": rng.choice(("boolean", "null", ["string", "null"], ["integer", "boolean"]))}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randrange(1, 5))
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema(rng, depth - 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
    }
    return made | ({"additionalProperties": False} if rng.random() < 0.7 else {})


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randrange(3)
    more = rng.choice(({}, {"minItems": least}, {"minItems": least, "maxItems": least + 2}))
    return {"type": "array", "items": schema(rng, depth - 1), **more}


def _either(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randrange(2, 4))]}
