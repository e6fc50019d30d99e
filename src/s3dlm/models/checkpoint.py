"""Weights from a folder into a network, one shard at a time.

Safetensors only: a pickle runs code when it is opened. Names and shapes are checked in the files'
headers before the network is built or a byte of weights is read, so a wrong checkpoint fails at once
and the error names all that is wrong with it. The network is built without memory, and each tensor
goes straight to its place on the device, a few rows at a time: the host holds little more than the
network.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from torch import Tensor

from s3dlm.errors import ModelError
from s3dlm.models.config import TransformerConfig
from s3dlm.models.family import Family, Slot, layout, tensor_count
from s3dlm.models.folder import read_json, shards
from s3dlm.models.mask import stated_mask_id
from s3dlm.models.transformer import Transformer, check_attention

QUIET_BELOW = 256 * 2**20  # bytes; smaller models load before a progress bar can be read
PIECE_BYTES = 256 * 2**20  # of weights that the host holds beside the network
LISTED = 5  # how many tensors an error names


def load_network(
    folder: Path,
    family: Family,
    *,
    device: torch.device,
    dtype: torch.dtype,
    mask_id: int | None = None,
    block: int | None = None,
    attention: str = "auto",
    progress: bool = True,
) -> Transformer:
    """The network of a folder, its weights on the device, ready to predict; `block` overrules the
    size of its causal blocks, and 0 means none."""
    stated = read_json(folder / "config.json")
    mask_id = stated_mask_id(stated, family) if mask_id is None else mask_id
    config = family.read(stated, family, mask_id)
    if block is not None:
        config = replace(config, causal_block=block or None)
    check_attention(attention, config, device.type, dtype)
    files = shards(folder)
    slots = _checked_layout(folder, config, family, files)
    with torch.device("meta"):
        network = Transformer(config, attention)
    state = _fill(network, slots, files, device, dtype, progress)
    network.load_state_dict(state, strict=True, assign=True)
    return network.requires_grad_(False).eval()


def _checked_layout(
    folder: Path, config: TransformerConfig, family: Family, files: list[Path]
) -> dict[str, Slot]:
    stored = dict(_headers(files))
    if tensor_count(config) > 4 * len(stored) + 1000:  # naming them all could take minutes
        raise ModelError(
            f"the weights in {folder} do not fit its config.json, which describes about "
            f"{tensor_count(config)} tensors; the files hold {len(stored)}"
        )
    slots = layout(config, family.names)
    _check(folder, slots, stored, {family.names.output} if config.tied else set())
    return slots


def _headers(files: list[Path]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for path in files:
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                yield name, tuple(file.get_slice(name).get_shape())


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a readable safetensors file: {error}") from error


def _check(
    folder: Path,
    slots: Mapping[str, Slot],
    stored: Mapping[str, tuple[int, ...]],
    spare: set[str],
) -> None:
    """Report at once everything that does not fit."""
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
    found = [f"{len(names)} {what}: {_few(names)}" for what, names in faults.items() if names]
    if found:
        raise ModelError(f"the weights in {folder} do not fit its config.json; " + "; ".join(found))


def _few(names: list[str]) -> str:
    more = f", … and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


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
        for name, first, tensor in _pieces(files, slots):
            slot = slots[name]
            if slot.parameter not in state:
                shape = network.get_parameter(slot.parameter).shape
                state[slot.parameter] = torch.empty(shape, dtype=dtype, device=device)
            rows = slot.of(state)[first : first + len(tensor)]
            rows.copy_(tensor)
            bar.advance(task, rows.nbytes)
    return state


def _pieces(files: list[Path], slots: Mapping[str, Slot]) -> Iterator[tuple[str, int, Tensor]]:
    """Rows of stored tensors: (name, first row, rows). A file is opened anew after every
    `PIECE_BYTES`, because all that was read of an open one counts as memory in use."""
    for path in files:
        with _open(path) as file:
            names = [name for name in file.keys() if name in slots]  # noqa: SIM118
        for group in _row_groups(names, slots):
            with _open(path) as file:
                for name, first, last in group:
                    yield name, first, file.get_slice(name)[first:last]


def _row_groups(
    names: list[str], slots: Mapping[str, Slot]
) -> Iterator[list[tuple[str, int, int]]]:
    """All rows of all tensors, in groups of about `PIECE_BYTES` each."""
    group: list[tuple[str, int, int]] = []
    room = PIECE_BYTES
    for name in names:
        rows, *rest = slots[name].shape
        row_bytes = 4 * math.prod(rest)  # at most: few checkpoints are in float32
        first = 0
        while first < rows:
            last = min(rows, first + max(1, room // row_bytes))
            group.append((name, first, last))
            room -= (last - first) * row_bytes
            first = last
            if room <= 0 or room < row_bytes:
                yield group
                group, room = [], PIECE_BYTES
    if group:
        yield group


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of every byte of every tensor, with names, shapes and dtypes."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:12]
