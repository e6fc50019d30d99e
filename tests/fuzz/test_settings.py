"""Settings of any value are refused in one line, or they make a search that ends."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

import s3dlm
from s3dlm.errors import S3dlmError, SettingsError
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings, has, names, schema
from tests.fakes import fake_model
from tests.fuzz import check_line, counts

EXTREMES: tuple[Any, ...] = (
    0, 1, 2, 3, -1, 7, 64, 1000, 1024, 1025, 65536, 65537, 2**31, 2**63, 10**9, 10**400, -(10**30), 0.0, -0.0,
    0.5, 1.0, 1.5, 1e-320, 1e-9, 1e9, 1e308, math.nan, math.inf, -math.inf, True, False, None, "", "x", "\ud800",
    "x" * 10_000, [], {}, [1], (), b"x", object,
)  # fmt: skip
SMALL = {"gen_length": 12, "steps": 3, "block_length": 12, "particles": 2, "branching": 2}
QUESTION = "Target: 24 Numbers: 6, 4, 12"
TASKS = (None, None, "countdown", "gsm8k", "sudoku", "code")


def extreme(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A method and settings of which a few are anything."""
    method, fields = rng.choice([*METHODS]), schema()
    row = METHODS.find(method)
    values: dict[str, Any] = {name: value for name, value in SMALL.items() if has(row, name)}
    used = names(row)
    for name in rng.sample(used if rng.random() < 0.9 else [*fields], rng.randint(1, 4)):
        values[name] = rng.choice(EXTREMES if rng.random() < 0.2 else [*edges(fields[name])])
    method = values.pop("method", method)
    return method if rng.random() < 0.97 else rng.choice(EXTREMES), values


def edges(rules: dict[str, Any]) -> Iterator[Any]:
    """Values that a field allows, or nearly so: its choices, its default, its bounds and beside them."""
    for kind in (rules, *rules.get("anyOf", ())):
        yield from kind.get("enum", ())
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if bound in kind:
                yield from (kind[bound], kind[bound] + 1, kind[bound] - 1, kind[bound] / 2)
        if kind.get("type") == "number":
            yield from (1e-320, 1e-9, 0.5, 1.0, 1e9)
        if kind.get("type") == "integer":
            yield from (1, 2, 3, 5)
    yield rules.get("default")


@pytest.mark.filterwarnings("ignore")
@counts(150, 5000)
def test_extreme_settings(count: int) -> None:
    rng, ran, refused, model = random.Random(count), 0, 0, fake_model()
    for number in range(count):
        method, values = extreme(rng)
        about = (number, method, values)
        try:
            settings = Settings(method, **values)
        except SettingsError as error:
            check_line(str(error), about)
            refused += 1
            continue
        assert Settings.from_json(settings.to_json()) == settings, about
        sizes = settings.decoding.gen_length, settings.search.texts_at_once
        if max(sizes) <= 300 and settings.most_nfe <= 2000:
            try:
                s3dlm.generate(model, QUESTION, task=rng.choice(TASKS), settings=settings)
                ran += 1
            except S3dlmError as error:
                check_line(str(error), about)
    assert min(ran, refused) > count / 20
