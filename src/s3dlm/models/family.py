"""What sets one family of models apart: numbers in config.json and names of tensors.

A family is a row of data (families.py). The network stacks query, key and value (and both halves of
SwiGLU) into one matrix each, so a stored tensor goes to a *slot*: some rows of one parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.config import Experts, TransformerConfig, short

if TYPE_CHECKING:  # families are listed without waiting for torch
    from torch import Tensor

    from s3dlm.models.transformer import Transformer

LARGEST = 1e30  # no number of a config.json is larger
Config: TypeAlias = Mapping[str, Any]  # the contents of config.json


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a family's checkpoints call each part; parts of a block follow the `block` prefix."""

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
    fused: str | None = None  # query, key and value in one tensor, in place of the three above
    query_norm: str = "q_norm.weight"
    key_norm: str = "k_norm.weight"
    router: str = "mlp.gate.weight"
    router_bias: str = "mlp.gate.expert_bias"
    expert: str = "mlp.experts.{expert}."  # then gate_proj, up_proj and down_proj
    shared: str = "mlp.shared_experts."


@dataclass(frozen=True, slots=True)
class Family:
    """Everything a loader needs to know about a family."""

    name: str
    model_types: tuple[str, ...]  # in config.json, compared in lower case
    read: Callable[[Config, Family, int], TransformerConfig]
    names: TensorNames
    end_tokens: tuple[str, ...]  # tokens that end an answer, beside the config's end of text
    mask_tokens: tuple[str, ...] = ()  # how the tokenizer may write the mask
    mask_id: int | None = None  # known from the authors' code, if no file states it
    architectures: tuple[str, ...] = ()  # tell families apart that share a model_type
    block: int | None = None  # block-causal with blocks of this size, unless config.json says
    shift: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    context: int | None = None  # what it was trained on, where config.json promises more
    examples: str = ""
    parity: str = ""  # the reference that our logits were compared with
    sampler: str = "LLaDA's"  # whose greedy decoding ours equals, on small random networks
    checked: bool = True  # False: tensor names were never seen in a published checkpoint

    @property
    def attention(self) -> str:
        return "bidirectional" if self.block is None else f"block-causal, {self.block}"


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
    for index in range(config.layers):
        prefix = names.block.format(index=index)
        for name, slot in _block(config, names, index):
            parameter = f"blocks.{index}.{slot.parameter}"
            slots[prefix + name] = Slot(parameter, slot.shape, slot.start, slot.expert)
    return slots


def tensor_count(config: TransformerConfig) -> int:
    """About how many tensors `layout` names, without naming them."""
    experts = 0 if config.experts is None else 3 * config.experts.count
    return config.layers * (9 + experts)


def _block(config: TransformerConfig, names: TensorNames, index: int) -> Iterator[tuple[str, Slot]]:
    width = config.width
    yield names.attention_norm, Slot("attention_norm", (width,))
    yield from _attention(config, names)
    yield names.out, Slot("out.weight", (width, config.heads * config.head_size))
    yield names.feed_norm, Slot("feed_norm", (width,))
    if config.experts is not None and config.is_mixture(index):
        yield from _mixture(config.experts, width, names)
    else:
        parts = (names.gate, names.up, names.down)
        yield from _feed(parts, "gate_up.weight", "down.weight", config.hidden, width)


def _attention(config: TransformerConfig, names: TensorNames) -> Iterator[tuple[str, Slot]]:
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    parts = [
        (names.query, queries, 0),
        (names.key, keys, queries),
        (names.value, keys, queries + keys),
    ]
    if names.fused is not None:
        parts = [(names.fused, queries + 2 * keys, 0)]
    for name, size, start in parts:
        yield f"{name}.weight", Slot("qkv.weight", (size, config.width), start)
        if config.qkv_bias:
            yield f"{name}.bias", Slot("qkv.bias", (size,), start)
    if config.qk_norm:
        yield names.query_norm, Slot("query_norm", (config.head_size,))
        yield names.key_norm, Slot("key_norm", (config.head_size,))


def _mixture(experts: Experts, width: int, names: TensorNames) -> Iterator[tuple[str, Slot]]:
    yield names.router, Slot("mixture.router", (experts.count, width))
    if experts.sigmoid:
        yield names.router_bias, Slot("mixture.router_bias", (experts.count,))
    for expert in range(experts.count):
        prefix = names.expert.format(expert=expert)
        parts = _projections(prefix)
        yield from _feed(
            parts, "mixture.gate_up", "mixture.down", experts.hidden, width, expert=expert
        )
    if experts.shared:
        parts = _projections(names.shared)
        inner = ("mixture.shared_gate_up", "mixture.shared_down")
        yield from _feed(parts, *inner, experts.shared, width)


def _projections(prefix: str) -> tuple[str, str, str]:
    gate, up, down = (f"{prefix}{name}_proj.weight" for name in ("gate", "up", "down"))
    return gate, up, down


def _feed(
    names: tuple[str, str, str],
    gate_up: str,
    down: str,
    hidden: int,
    width: int,
    expert: int | None = None,
) -> Iterator[tuple[str, Slot]]:
    yield names[0], Slot(gate_up, (hidden, width), expert=expert)
    yield names[1], Slot(gate_up, (hidden, width), start=hidden, expert=expert)
    yield names[2], Slot(down, (width, hidden), expert=expert)


def export(network: Transformer, names: TensorNames) -> dict[str, Tensor]:
    """The network's weights under the family's own names, as a checkpoint stores them."""
    state = network.state_dict()
    slots = layout(network.config, names)
    return {name: slot.of(state).contiguous() for name, slot in slots.items()}


def build_config(**numbers: Any) -> TransformerConfig:
    """A config whose numbers come from a file: what is wrong with them is the model's fault."""
    try:
        return TransformerConfig(**numbers)
    except SettingsError as error:
        raise ModelError(f"config.json does not describe a network: {error}") from error


def build_experts(**numbers: Any) -> Experts:
    try:
        return Experts(**numbers)
    except SettingsError as error:
        raise ModelError(f"config.json does not describe a mixture of experts: {error}") from error


def required(config: Config, key: str, kind: type = int) -> Any:
    """A number that config.json must have; integers beyond any float are none."""
    value: Any = config.get(key)
    usable = isinstance(value, (kind, int)) and not isinstance(value, bool)
    if not usable or (kind is float and not -LARGEST < value < LARGEST):
        raise ModelError(f"config.json needs a number {key!r}; it has {short(value)}")
    return value


def optional(config: Config, key: str, default: Any, kind: type = int) -> Any:
    """A number that config.json may have; null counts as absent."""
    return default if config.get(key) is None else required(config, key, kind)


def flag(config: Config, key: str, default: bool = False) -> bool:
    """A truth value that config.json may have."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise ModelError(f"config.json needs true or false as {key!r}; it has {short(value)}")
    return default if value is None else value


def refuse_unless(config: Config, family: str, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Name every option that our network does not have; an absent key means its usual value."""
    wrong = {
        key: config[key] for key in allowed if key in config and config[key] not in allowed[key]
    }
    if wrong:
        stated = ", ".join(
            f"{key}={short(value)} (supported: {allowed[key][0]!r})" for key, value in wrong.items()
        )
        raise ModelError(f"the native network does not support this {family} config: {stated}")
