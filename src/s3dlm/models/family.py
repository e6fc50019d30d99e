"""What sets one family of models apart: numbers in config.json and names of tensors.

A family is a row of data. The network stacks query, key and value (and both halves of SwiGLU) into
one matrix each, so a stored tensor goes to a *slot*: some rows of one parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.transformer import Transformer, TransformerConfig


@dataclass(frozen=True, slots=True)
class TensorNames:
    """How a family's checkpoints call each part; `block` is a prefix, parts of it have a suffix."""

    embedding: str
    norm: str
    output: str
    block: str  # with {index}
    attention_norm: str
    query: str  # this and the next two: without .weight or .bias
    key: str
    value: str
    out: str
    feed_norm: str
    gate: str
    up: str
    down: str
    query_norm: str = "q_norm.weight"
    key_norm: str = "k_norm.weight"


@dataclass(frozen=True, slots=True)
class Family:
    """Everything a loader needs to know about a family."""

    name: str
    network: type[Transformer]
    read: Callable[[Mapping[str, Any]], TransformerConfig]  # config.json to our numbers
    names: TensorNames
    end_tokens: tuple[str, ...]  # tokens that end an answer, beside the config's end of text


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a stored tensor goes: rows `start`.. of a parameter."""

    parameter: str
    shape: tuple[int, ...]
    start: int = 0


def layout(config: TransformerConfig, names: TensorNames) -> dict[str, Slot]:
    """Every tensor a checkpoint must hold, by its stored name."""
    matrix = (config.vocabulary, config.width)
    slots = {
        names.embedding: Slot("embedding.weight", matrix),
        names.norm: Slot("norm", (config.width,)),
    }
    if not config.tied:
        slots[names.output] = Slot("output.weight", matrix)
    for index in range(config.layers):
        stored = names.block.format(index=index)
        for name, slot in _block(config, names):
            slots[stored + name] = Slot(f"blocks.{index}.{slot.parameter}", slot.shape, slot.start)
    return slots


def _block(config: TransformerConfig, names: TensorNames) -> Iterator[tuple[str, Slot]]:
    width, hidden = config.width, config.hidden
    yield names.attention_norm, Slot("attention_norm", (width,))
    yield from _attention(config, names)
    yield names.out, Slot("out.weight", (width, config.heads * config.head_size))
    yield names.feed_norm, Slot("feed_norm", (width,))
    yield names.gate, Slot("gate_up.weight", (hidden, width))
    yield names.up, Slot("gate_up.weight", (hidden, width), start=hidden)
    yield names.down, Slot("down.weight", (width, hidden))


def _attention(config: TransformerConfig, names: TensorNames) -> Iterator[tuple[str, Slot]]:
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    parts = (
        (names.query, queries, 0),
        (names.key, keys, queries),
        (names.value, keys, queries + keys),
    )
    for name, size, start in parts:
        yield f"{name}.weight", Slot("qkv.weight", (size, config.width), start)
        if config.qkv_bias:
            yield f"{name}.bias", Slot("qkv.bias", (size,), start)
    if config.qk_norm:
        yield names.query_norm, Slot("query_norm", (config.head_size,))
        yield names.key_norm, Slot("key_norm", (config.head_size,))


def export(network: Transformer, names: TensorNames) -> dict[str, Tensor]:
    """The network's weights under the family's own names, as a checkpoint stores them."""
    state = network.state_dict()
    return {
        name: state[slot.parameter][slot.start : slot.start + slot.shape[0]].contiguous()
        for name, slot in layout(network.config, names).items()
    }


def build_config(**numbers: Any) -> TransformerConfig:
    """A config whose numbers come from a file: what is wrong with them is the model's fault."""
    try:
        return TransformerConfig(**numbers)
    except SettingsError as error:
        raise ModelError(f"config.json does not describe a network: {error}") from error


def required(config: Mapping[str, Any], key: str, kind: type = int) -> Any:
    """A number the config must have."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (kind, int)):
        raise ModelError(f"config.json needs a number {key!r}; it has {value!r}")
    return value


def refuse_unless(
    config: Mapping[str, Any], family: str, allowed: Mapping[str, tuple[Any, ...]]
) -> None:
    """Name every option that our network does not have; an absent key means its usual value."""
    wrong = {
        key: config[key] for key in allowed if key in config and config[key] not in allowed[key]
    }
    if wrong:
        told = ", ".join(
            f"{key}={value!r} (needs {allowed[key][0]!r})" for key, value in wrong.items()
        )
        raise ModelError(f"this {family} config asks for what the native network has not: {told}")
