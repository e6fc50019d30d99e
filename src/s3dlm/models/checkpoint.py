"""Weights from a folder into a network, one shard at a time.

Safetensors only: a pickle runs code when it is opened. Names and shapes are checked in the files'
headers before the first byte of weights is read, so a wrong checkpoint fails at once and says all
that is wrong with it. The network is built without memory, and each tensor goes straight to its
place on the device: the host holds at most the model and one shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.family import Family, Slot, layout
from s3dlm.models.folder import read_json, shards
from s3dlm.models.transformer import Transformer

QUIET_BELOW = 256 * 2**20  # bytes; smaller models load before a bar can be read
TOLD = 5  # how many tensors an error names


def load_network(
    folder: Path,
    family: Family,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str = "auto",
    progress: bool = True,
) -> Transformer:
    """The network of a folder, its weights on the device, ready to predict."""
    config = family.read(read_json(folder / "config.json"))
    with torch.device("meta"):
        network = family.network(config, attention)
    files, slots = shards(folder), layout(config, family.names)
    spare = {family.names.output} if config.tied else set()
    _check(folder, slots, dict(_headers(files)), spare)
    state = _fill(network, slots, files, device, dtype, progress)
    network.load_state_dict(state, strict=True, assign=True)
    return network.requires_grad_(False).eval()


def _headers(files: list[Path]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in files:
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                yield name, tuple(file.get_slice(name).get_shape())


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is no readable safetensors file: {error}") from error


def _check(
    folder: Path,
    slots: Mapping[str, Slot],
    stored: Mapping[str, tuple[int, ...]],
    spare: set[str],
) -> None:
    """Say at once everything that does not fit."""
    faults = {
        "missing": [name for name in slots if name not in stored],
        "unexpected": [
            name
            for name in stored
            if name not in slots and name not in spare and not name.endswith("rotary_emb.inv_freq")
        ],
        "wrongly shaped": [
            f"{name} is {list(stored[name])}, must be {list(slot.shape)}"
            for name, slot in slots.items()
            if name in stored and stored[name] != slot.shape
        ],
    }
    told = [f"{len(names)} {what}: {_few(names)}" for what, names in faults.items() if names]
    if told:
        raise ModelError(f"the weights in {folder} do not fit its config.json; " + "; ".join(told))


def _few(names: list[str]) -> str:
    more = f", … and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more


def _fill(
    network: Transformer,
    slots: Mapping[str, Slot],
    files: list[Path],
    device: torch.device,
    dtype: torch.dtype,
    progress: bool,
) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    total = dtype.itemsize * sum(math.prod(slot.shape) for slot in slots.values())
    console = Console(stderr=True)
    quiet = not progress or not console.is_terminal or total < QUIET_BELOW
    with Progress(console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("Loading weights", total=total)
        for name, tensor in _tensors(files, slots):
            slot = slots[name]
            if slot.parameter not in state:
                shape = network.get_parameter(slot.parameter).shape
                state[slot.parameter] = torch.empty(shape, dtype=dtype, device=device)
            rows = state[slot.parameter][slot.start : slot.start + slot.shape[0]]
            rows.copy_(tensor)
            bar.advance(task, rows.nbytes)
    return state


def _tensors(files: list[Path], slots: Mapping[str, Slot]) -> Iterator[tuple[str, Tensor]]:
    for path in files:
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                if name in slots:
                    yield name, file.get_tensor(name)
