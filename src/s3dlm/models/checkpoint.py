"""Weights from a folder into a network, one shard at a time.

Safetensors only: a pickle runs code when it is opened. Names and shapes are checked in the files'
headers before the network is built or a byte of weights is read, so a wrong checkpoint fails at once
and the error names all that is wrong with it. The network is built without memory, and each tensor
goes straight from the mapped file to its place on the device: the host holds little more than the
network.

The network stacks query, key and value (and both halves of SwiGLU) into one matrix each, so a stored
tensor goes to a *slot*: some rows of one parameter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.base import Loading, Model
from s3dlm.models.family import Family, TensorNames, TransformerConfig, find_mask_id, integer
from s3dlm.models.folder import read_json, shards
from s3dlm.models.tokenizer import GridTokenizer, TextTokenizer, load_tokenizer
from s3dlm.models.transformer import Transformer

BD3LM_BLOCK = 32
LARGE = 256 * 2**20  # bytes; smaller models load before a progress bar can be read
FAULTS_SHOWN = 5  # how many tensors an error names


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a stored tensor goes: rows `start`.. of a parameter, or of one expert's part of it."""

    parameter: str
    shape: tuple[int, ...]
    start: int = 0
    expert: int | None = None

    def of(self, state: Mapping[str, Tensor]) -> Tensor:
        whole = state[self.parameter]
        part = whole if self.expert is None else whole[self.expert]
        return part[self.start : self.start + self.shape[0]]


def layout(config: TransformerConfig, names: TensorNames) -> dict[str, Slot]:
    """Every tensor a checkpoint must hold, by its stored name."""
    matrix = (config.vocabulary, config.width)
    slots = {
        names.embedding: Slot("embedding.weight", matrix),
        names.norm: Slot("norm", (config.width,)),
    }
    if not config.tied:
        slots[names.output] = Slot("output.weight", matrix)
    if config.grid is not None:
        slots["grid.places"] = Slot("grid.places", (3 * config.grid**2, config.width))
        slots["grid.bias"] = Slot("grid.bias", (config.layers, config.heads, 3))
    for index in range(config.layers):
        prefix = names.block.format(index=index)
        for name, slot in _block_layout(config, names, index).items():
            slots[prefix + name] = replace(slot, parameter=f"blocks.{index}.{slot.parameter}")
    return slots


def _block_layout(config: TransformerConfig, names: TensorNames, index: int) -> dict[str, Slot]:
    width, size = config.width, config.head_size
    queries, keys = config.heads * size, config.kv_heads * size
    slots = {
        names.attention_norm: Slot("attention_norm", (width,)),
        names.out: Slot("out.weight", (width, queries)),
        names.feed_norm: Slot("feed_norm", (width,)),
    }
    if config.qk_norm:
        slots[names.query_norm] = Slot("query_norm", (size,))
        slots[names.key_norm] = Slot("key_norm", (size,))
    parts = (queries, keys, keys) if len(names.qkv) == 3 else (queries + 2 * keys,)
    start = 0
    for name, rows in zip(names.qkv, parts, strict=True):
        slots[f"{name}.weight"] = Slot("qkv.weight", (rows, width), start)
        if config.qkv_bias:
            slots[f"{name}.bias"] = Slot("qkv.bias", (rows,), start)
        start += rows

    def feed(stored: Sequence[str], parameter: str, hidden: int, expert: int | None = None) -> None:
        gate_up, down = parameter.format("gate_up"), parameter.format("down")
        slots[stored[0]] = Slot(gate_up, (hidden, width), 0, expert)
        slots[stored[1]] = Slot(gate_up, (hidden, width), hidden, expert)
        slots[stored[2]] = Slot(down, (width, hidden), 0, expert)

    def projections(prefix: str) -> list[str]:
        return [f"{prefix}{name}_proj.weight" for name in ("gate", "up", "down")]

    experts = config.experts_of(index)
    if experts is None:
        feed(names.feed, "{}.weight", config.hidden)
        return slots
    slots["mlp.gate.weight"] = Slot("mixture.router", (experts.count, width))
    if experts.sigmoid:
        slots["mlp.gate.expert_bias"] = Slot("mixture.router_bias", (experts.count,))
    for expert in range(experts.count):
        feed(projections(f"mlp.experts.{expert}."), "mixture.{}", experts.hidden, expert)
    if experts.shared:
        feed(projections("mlp.shared_experts."), "mixture.shared_{}", experts.shared)
    return slots


def load_native(name: str, folder: Path, family: Family, how: Loading) -> Model:
    """A model of a family that the native network runs."""
    stated = read_json(folder / "config.json")
    order = integer(stated, "grid_order", default=None)
    tokenizer: GridTokenizer | TextTokenizer
    if order is not None:
        tokenizer = GridTokenizer(order, masks=stated.get("mask_token_id") != -1)
    else:
        tokenizer = load_tokenizer(folder, trust_remote_code=how.trusted)
    mask_id = find_mask_id(stated, name, tokenizer.inner, family, how.mask_id)
    block = how.block
    if block is None and "bd3lm" in Path(name).name.lower() and family.name.startswith("A2D"):
        block = BD3LM_BLOCK  # no file states it: these are told by their names alone
    try:
        config = family.read(stated, family, mask_id)
        if block is not None:
            config = replace(config, causal_block=block or None)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ModelError(
            f"the network's {wrong['loc'][0]}={short_repr(wrong['input'])} is not allowed: {wrong['msg']}"
        ) from None
    files = shards(folder)
    slots = _checked_layout(folder, config, family, files)
    with torch.device("meta"):
        network = Transformer(config)
    state: dict[str, Tensor] = {}
    tensors: Iterable[tuple[str, Tensor]] = _tensors(files)
    if how.progress and sys.stderr.isatty() and sum(each.stat().st_size for each in files) > LARGE:
        from rich import console, progress  # take as long as loading a small model

        where = console.Console(stderr=True)
        tensors = progress.track(
            tensors, "Loading weights", len(slots), console=where, transient=True
        )
    for name_in_file, tensor in tensors:
        if (slot := slots.get(name_in_file)) is None:
            continue
        if slot.parameter not in state:
            shape = network.get_parameter(slot.parameter).shape
            state[slot.parameter] = torch.empty(shape, dtype=how.dtype, device=how.device)
        slot.of(state).copy_(tensor)
    if how.adapter is not None:
        how.adapter.merge({stored: slot.of(state) for stored, slot in slots.items()})
    network.load_state_dict(state, strict=True, assign=True)
    network.requires_grad_(False).eval()
    ends = tokenizer.end_ids(stated.get("eos_token_id"), family.end_tokens)
    return Model(name, network, tokenizer, ends)


def _checked_layout(
    folder: Path, config: TransformerConfig, family: Family, files: list[Path]
) -> dict[str, Slot]:
    """The slots of a checkpoint, or an error that names everything that does not fit."""
    stored: dict[str, tuple[int, ...]] = {}
    for path in files:
        with _open(path) as file:
            stored |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    expected = config.layers * (9 + (3 * config.experts.count if config.experts else 0))
    if expected > 4 * len(stored) + 1000:  # naming them all could take minutes
        raise ModelError(
            f"the weights in {folder} do not fit its config.json, which describes about "
            f"{expected} tensors; the files hold {len(stored)}"
        )
    slots = layout(config, family.names)
    spare = {family.names.output} if config.tied else set()
    extra = stored.keys() - slots.keys() - spare
    faults = {
        "missing": [name for name in slots if name not in stored],
        "unexpected": sorted(n for n in extra if not n.endswith("rotary_emb.inv_freq")),
        "wrongly shaped": [
            f"{name} is {list(stored[name])}, must be {list(slot.shape)}"
            for name, slot in slots.items()
            if stored.get(name, slot.shape) != slot.shape
        ],
    }
    told = []
    for fault, names in faults.items():
        more = f", … and {len(names) - FAULTS_SHOWN} more" if len(names) > FAULTS_SHOWN else ""
        if names:
            told.append(f"{len(names)} {fault}: {', '.join(names[:FAULTS_SHOWN])}{more}")
    if told:
        raise ModelError(f"the weights in {folder} do not fit its config.json; " + "; ".join(told))
    return slots


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is not a readable safetensors file: {str(error)[:300]}"
        ) from error


def _tensors(files: list[Path]) -> Iterator[tuple[str, Tensor]]:
    """All stored tensors, one at a time; a file is mapped, so nothing is read before it is copied."""
    for path in files:
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)
