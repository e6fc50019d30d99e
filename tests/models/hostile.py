"""Hostile model folders: a small good one, and one or two of its files made bad in some way."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

from s3dlm.errors import S3dlmError
from s3dlm.models.registry import load
from s3dlm.settings import Settings

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**12, 10**400, -(10**30), 0.5, -0.5, 1e308,
    float("nan"), float("inf"), "", "x", "\ud800", "x" * 10_000, [], [[]], [None], [-1], {}, {"a": {}},
)  # fmt: skip
BYTES = (
    b"", b"{", b"[]", b"null", b"\xff\xfe", b"\x00" * 64, b"[" * 100_000, b'{"a":' * 50_000, b"9" * 6000,
    b'{"model_type": "llada", "d_mod',
)  # fmt: skip
TEMPLATES = (
    "{{ 1 / 0 }}", "{% for %}", "{{ x.y.z }}", "{{ ''.__class__.__mro__ }}", "{{ 10 ** 10 ** 10 }}",
    "{{ messages.__init__.__globals__ }}", "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{{ 'x' * 99999999999 }}", "{{ '%999999999999d' % 1 }}", "{{ range(10 ** 9) | list }}",
    "{{ raise_exception('no\nline') }}", "{% include 'x' %}", "{% import 'os' as os %}", "{{ '\ud800' }}",
    "{% set x = messages.append(1) %}", "{{ messages | tojson(indent=99999999999) }}", "x" * 300_000, "\x00",
)  # fmt: skip


JSON = (
    "config.json", "config.json", "tokenizer.json", "tokenizer_config.json", "s3dlm.json", "calibration.json",
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    within: Any = enumerate(value) if isinstance(value, list) else ()
    within = list(value.items() if isinstance(value, dict) else within)[:40]
    return [path, *(place for key, inner in within for place in _places(inner, (*path, key)))]


def _changed_json(folder: Path, rng: random.Random) -> None:
    """One or a few values of a file replaced, removed or added."""
    path = folder / rng.choice(JSON)
    data = json.loads(path.read_text())
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, value = rng.choice(_places(data)[1:] or [("a",)]), rng.choice(VALUES)
        inner = data
        for key in place[:-1]:
            inner = inner[key]
        if rng.random() < 0.15:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
    path.write_text(json.dumps(data))


def _weights(folder: Path, rng: random.Random) -> None:
    """A truncated file, or a header that is wrong about itself or about what follows."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    way = rng.randrange(5)
    if way == 0:
        path.write_bytes(data[: rng.randrange(len(data))])
    elif way == 1:
        path.write_bytes(struct.pack("<Q", rng.choice((0, 1, 2**31, 2**63, 2**64 - 1))) + data[8:])
    elif way == 2:
        flipped = bytearray(data)
        flipped[rng.randrange(8 + size)] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
    else:
        entry = header[rng.choice([name for name in header if name != "__metadata__"])]
        field = rng.choice(("dtype", "shape", "data_offsets"))
        lies: tuple[Any, ...] = ("F64", "I8", "BOOL", [2**62, 4], [0, 2**63], [-1, 5], [8, 0])
        entry[field] = rng.choice((*lies, *VALUES))
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body + b"\0" * rng.choice((0, 0, 9)))


WAYS = (*[_changed_json] * 6, _weights, _weights)


def make(good: Path, folder: Path, seed: int) -> None:
    """A copy of a good folder, made hostile."""
    shutil.copytree(good, folder)
    weights = dict.fromkeys(("intercept", "score", "agreement", "confidence"), 1.0)
    fit = {"task": "general", "method": "s3", "verifier": "paper", "weights": weights}
    (folder / "calibration.json").write_text(json.dumps({"fits": [fit], "fingerprint": "x"}))
    settings = {
        "*": {"particles": 2, "lam": 1.5, "verifier": "checker"},
        "task:gsm8k": {"steps": 8},
    }
    own = {"prompt_style": "d1", "tasks": ["gsm8k"], "settings": settings}
    (folder / "s3dlm.json").write_text(json.dumps(own))
    rng = random.Random(seed)
    for way in rng.sample(WAYS, rng.choice((1, 1, 2))):
        try:
            way(folder, rng)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            continue  # the file is already bad


def use(folder: Path) -> str | None:
    """What an error says of a folder, or None if it serves."""
    import torch

    try:
        model = load(str(folder), progress=False)
        for method, task in (("s3", None), ("greedy", "gsm8k")):
            Settings.recommended(model.defaults, method, task)
        fit = model.calibrations.find("general", ["s3"], None)
        if fit is not None:
            fit.weights.p_correct(0.5, 1.0)
        ids = model.tokenizer.chat("2 + 2?", "<reasoning>")
        model.tokenizer.decode(ids[:32])
        row = torch.tensor([[model.denoiser.mask_id, 1, 2]])
        model.denoiser.head(model.denoiser.encode(row)[0])
    except S3dlmError as error:
        return str(error)
    return None
