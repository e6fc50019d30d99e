"""What a run is, written beside its records: plan, problems, model, versions, machine.

A folder holds one plan. The same command resumes it; a larger plan (more methods, more seeds, a
higher limit) adds to it; a changed plan is refused, because its records would mean something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import s3dlm
from s3dlm.errors import RecordError
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Contents, file_of, seal, unseal, write_atomic
from s3dlm.inputs import read_json_lines
from s3dlm.models.base import Model, Tokenizer
from s3dlm.tasks import Sample

MANIFEST_VERSION = 2
MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"
FIXED = ("model", "fingerprint", "prompt_style", "split", "token_counter")
_PACKAGES = ("torch", "transformers", "numpy", "math-verify", "tiktoken")
_CL100K = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The plan of a folder, and the environment it ran in."""

    model: str
    fingerprint: str  # of the weights
    prompt_style: str
    split: str
    conditions: tuple[Condition, ...]
    seeds: tuple[int, ...]
    counts: Mapping[str, int]  # number of problems by task
    origins: Mapping[str, str]  # where the problems come from, by task
    token_counter: str
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def run(self) -> str:
        """A name for the run that does not change when its plan grows; every record carries it."""
        plain = [getattr(self, name) for name in FIXED]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:12]


def read(folder: Path) -> Manifest:
    """The manifest of a folder that `s3dlm eval` wrote."""
    path = file_of(folder, MANIFEST)
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(row, dict):
            raise ValueError(f"it holds a JSON {type(row).__name__}, not an object")
        json.dumps(row, ensure_ascii=False).encode()  # refuses what no report can show
        if (version := row.pop("v")) != MANIFEST_VERSION:
            raise ValueError(
                f"its version {version!r} is not supported (this is {MANIFEST_VERSION}); the run was made by "
                "another version of s3dlm: start a new folder"
            )
        conditions = tuple(Condition.from_json(plain) for plain in row["conditions"])
        made = TypeAdapter(Manifest).validate_python({**row, "conditions": conditions})
        planned = {condition.task for condition in conditions}
        if not conditions or not planned <= {*made.counts} & {*made.origins}:
            raise ValueError("it lacks conditions, or the problems of one")
        return made
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())[:300]
        raise RecordError(f"{path} cannot be read: {why}; restore it") from error


def read_samples(folder: Path) -> dict[str, list[Sample]]:
    """The problems of a run by task, in their order."""
    path = file_of(folder, SAMPLES)
    samples: dict[str, list[Sample]] = {}
    remedy = "restore it or start a new folder"
    for number, row in read_json_lines(path, remedy=remedy, unseal=unseal):
        try:
            samples.setdefault(row.pop("task"), []).append(Sample(**row))
        except (TypeError, KeyError) as error:
            raise RecordError(f"{path}, line {number}, is damaged ({error}); {remedy}") from error
    return samples


def commit(
    folder: Path, new: Manifest, samples: Mapping[str, Sequence[Sample]], stored: Contents
) -> None:
    """Write the plan, or refuse it if the folder holds another one."""
    if (folder / MANIFEST).is_file():
        old = read(folder)
        if changes := _changes(old, new):
            raise RecordError(
                f"{folder} holds another run: {'; '.join(changes)}. A plan may grow but not change: "
                "repeat the first command, add to it, or give another folder with --out"
            )
        refuse_other_records(old, stored, folder)
        for task, before in read_samples(folder).items():
            now = {sample.id: _plain(sample) for sample in samples.get(task, ())}
            for sample in before:
                if now.get(sample.id) != _plain(sample):
                    raise RecordError(
                        f"{folder} was started with other problems: {sample.id} of task={task!r} "
                        "has changed; use the data of the first run, or give another folder with --out"
                    )
    elif stored.runs:
        raise RecordError(
            f"{folder} has records but no {MANIFEST}, so their settings are unknown; restore the file, "
            "or give another folder with --out"
        )
    lines = [
        seal({"task": task, **dataclasses.asdict(sample)}).decode()
        for task, of_task in samples.items()
        for sample in of_task
    ]
    write_atomic(folder / SAMPLES, "".join(lines))
    row = {field.name: getattr(new, field.name) for field in dataclasses.fields(new)}
    row["conditions"] = [condition.to_json() for condition in new.conditions]
    text = json.dumps({"v": MANIFEST_VERSION, **row}, ensure_ascii=False, indent=1)
    write_atomic(folder / MANIFEST, text + "\n")


def _plain(sample: Sample) -> str:
    """As JSON, which makes no difference between tuples and lists."""
    return json.dumps([sample.question, sample.gold])


def refuse_other_records(manifest: Manifest, stored: Contents, folder: Path) -> None:
    """The records of a folder must belong to its manifest."""
    planned = {condition.spec for condition in manifest.conditions}
    specs = {spec for spec, _, _ in (*stored.records, *stored.failures)}
    if not stored.runs <= {manifest.run} or not specs <= planned:
        raise RecordError(
            f"{folder / MANIFEST} and the records beside it belong to different runs; restore the "
            "file, or give another folder with --out"
        )


def _changes(old: Manifest, new: Manifest) -> list[str]:
    """What differs apart from growth: fixed fields, settings, and what is missing."""
    changes = [
        f"{name} was {getattr(old, name)!r} and is now {getattr(new, name)!r}"
        for name in FIXED
        if getattr(old, name) != getattr(new, name)
    ]
    planned = {condition.spec for condition in new.conditions}
    main = {(c.task, c.label): c.settings.to_json() for c in new.conditions if c.main}
    for condition in old.conditions:
        if condition.spec in planned:
            continue
        after = main.get((condition.task, condition.label)) if condition.main else None
        if after is None:
            changes.append(f"{condition.task}/{condition.label} is missing")
            continue
        for name, value in condition.settings.to_json().items():
            if after.get(name) != value:
                changes.append(f"{name} was {value!r} and is now {after.get(name)!r}")
    if not set(old.seeds) <= set(new.seeds):
        changes.append(f"seeds were {list(old.seeds)} and are now {list(new.seeds)}")
    for task, count in old.counts.items():
        if new.counts.get(task, 0) < count:
            changes.append(f"{task} had {count} problems and now has {new.counts.get(task, 0)}")
    return list(dict.fromkeys(changes))


def describe(model: Model) -> dict[str, Any]:
    """The fields of a manifest that model and machine decide; nothing identifies the machine."""
    import torch

    from s3dlm.models.device import stored

    versions = {"python": platform.python_version(), "s3dlm": s3dlm.__version__}
    for name in _PACKAGES:
        versions[name] = "not installed"
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    device, sizes = torch.device(model.denoiser.device), Counter[str]()
    for _, tensor in stored(model.denoiser.tensors()):
        sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    machine = {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": max(sizes, key=lambda name: sizes[name]) if sizes else "unknown",
        "parameters": sum(tensor.numel() for _, tensor in model.denoiser.tensors()),
    }
    return {
        "model": model.name,
        "fingerprint": fingerprint(model),
        "prompt_style": model.defaults.wording,
        "token_counter": token_counter(model.tokenizer)[0],
        "versions": versions,
        "machine": machine,
    }


def fingerprint(model: Model) -> str:
    """A hash of the weights: name, shape and every value of every tensor."""
    import torch

    from s3dlm.models.device import stored

    digest = hashlib.sha256(type(model.denoiser).__name__.encode())
    for name, tensor in stored(model.denoiser.tensors()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().contiguous().flatten().cpu()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:12]


def token_counter(tokenizer: Tokenizer) -> tuple[str, Callable[[str], int]]:
    """Name and function of a way to count tokens: the paper's cl100k_base if tiktoken and its file
    are installed, else the model's tokenizer.

    The file is never downloaded: two runs must not differ because one of them had a network.
    """
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    path = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    if (path / hashlib.sha1(_CL100K.encode()).hexdigest()).is_file():  # tiktoken's name for it
        with contextlib.suppress(ImportError):
            import tiktoken

            encoding = tiktoken.get_encoding("cl100k_base")
            return "cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=()))
    return "the model's tokenizer", lambda text: len(tokenizer.encode(text))
