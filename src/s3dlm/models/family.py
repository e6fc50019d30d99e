"""What sets one family of models apart: the shape of its network, names of tensors, the mask id.

Plain data, free of torch: families and their limits can be listed at once, and a hostile config.json
is refused before any memory is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from s3dlm.errors import ModelError, SettingsError, short_repr

Config: TypeAlias = Mapping[str, Any]  # the contents of config.json

LARGEST_NUMBER = 1e30  # no number of a config.json is larger


def _whole(most: int, least: int = 1) -> Any:
    return Field(strict=True, ge=least, le=most)


# Larger than any published model, small enough that a product of two cannot exhaust a machine
# before the shapes have been compared with the weight files.
Width = Annotated[int, _whole(65_536)]
Hidden = Annotated[int, _whole(1_000_000)]
Heads = Annotated[int, _whole(1024)]
HeadWidth = Annotated[int, _whole(4096)]
VocabularySize = Annotated[int, _whole(2_000_000)]
Positions = Annotated[int, _whole(4_194_304)]
ExpertCount = Annotated[int, _whole(4096)]
Number = Annotated[float, Field(ge=0, lt=LARGEST_NUMBER)]


@pydantic_dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward layer."""

    count: ExpertCount
    chosen: ExpertCount  # experts per token
    hidden: Hidden  # inner width of each expert
    shared: Annotated[int, _whole(1_000_000, 0)] = 0  # inner width of the one that every token uses
    first_layer: Annotated[int, _whole(512, 0)] = 0  # layers before it are dense
    sigmoid: bool = False  # router: sigmoid with a bias used for choosing only, else softmax
    groups: ExpertCount = 1  # experts compete in groups, of which the best are kept
    kept_groups: ExpertCount = 1
    renormalised: bool = False  # whether the weights of the chosen experts add up to one
    scale: Number = 1.0  # of the routed experts' sum

    def __post_init__(self) -> None:
        members, rest = divmod(self.count, self.groups)
        fits = not rest and (members > 1 or self.groups == 1) and self.kept_groups <= self.groups
        if not fits or self.chosen > members * self.kept_groups:
            raise ModelError(
                f"{self.count} experts cannot form {self.groups} equal groups of two or more, of which "
                f"{self.kept_groups} have the {self.chosen} that a token chooses"
            )


@pydantic_dataclass(frozen=True)
class Yarn:
    """Rotary positions of a longer context than was trained first (YaRN, 2309.00071)."""

    factor: Annotated[Number, Field(ge=1)]  # how much longer
    original: Positions  # the context that was trained first
    fast: Number = 32.0  # pairs that turn this often in it keep their speed
    slow: Annotated[Number, Field(gt=0)] = 1.0  # those that turn less often are slowed by `factor`
    attention: Annotated[Number, Field(gt=0)] = 1.0  # factor of queries and keys
    whole: bool = True  # the ramp between the two begins and ends with whole pairs
    query_beta: Number = 0.0  # a query grows by 1 + β ln(1 + ⌊position / original⌋), as in Llama 4

    def __post_init__(self) -> None:
        if self.slow >= self.fast:
            raise ModelError(
                f"YaRN needs a beta_slow below beta_fast; config.json states {self.slow:g} and {self.fast:g}"
            )


@pydantic_dataclass(frozen=True)
class TransformerConfig:
    """The shape of a network; two configs that are equal hold the same tensors."""

    vocabulary: VocabularySize  # rows of the embedding, and logits per position
    width: Width
    layers: Annotated[int, _whole(512)]
    heads: Heads
    hidden: Hidden  # inner width of SwiGLU
    mask_id: Annotated[int, _whole(2_000_000, -1)]  # −1: none, it denoises uniform noise
    context: Positions
    key_value_heads: Heads | None = None  # None: as many as heads
    head_width: HeadWidth | None = None  # None: width / heads
    rope_theta: Number = 10_000.0
    rope_width: HeadWidth | None = (
        None  # leading part of each head that is rotated; None: all of it
    )
    yarn: Yarn | None = None
    norm_epsilon: Number = 1e-5
    qkv_bias: bool = False
    qk_norm: bool = False  # RMSNorm on each head's query and key
    tied: bool = False  # the head is the embedding
    causal_block: Positions | None = (
        None  # a position sees its own block of this size and earlier ones
    )
    causal_prefix: bool = False  # what is before the open block is read causally
    shift: bool = False  # position i is predicted by the features of position i − 1
    experts: Experts | None = None
    text_vocabulary: VocabularySize | None = (
        None  # ids from here on are no text and are never predicted
    )
    grid: Annotated[int, _whole(4)] | None = None  # n: a row is a grid of n²×n² cells; no rotation

    def __post_init__(self) -> None:
        if self.mask_id >= self.vocabulary:
            raise ModelError(f"mask_id={self.mask_id} must be below vocabulary={self.vocabulary}")
        if self.causal_prefix and self.causal_block is None:
            raise ModelError(
                "a model that reads its prefix causally needs its blocks; leave out block=0"
            )
        if self.yarn is not None and self.rope_theta <= 1:
            raise ModelError(f"rope_theta={self.rope_theta:g} must be above 1 with YaRN")
        if self.head_width is None and self.width % self.heads:
            raise ModelError(f"width={self.width} is not a multiple of heads={self.heads}")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"heads={self.heads} is not a multiple of key_value_heads={self.kv_heads}"
            )
        if self.rotated % 2 or self.rotated > self.head_size:
            raise ModelError(
                f"{self.rotated} of {self.head_size} positions of a head are rotated; rotary "
                "positions come in pairs, so this must be even and fit the head"
            )

        side = (self.grid or 0) ** 2
        shape = (self.vocabulary, self.text_vocabulary, self.mask_id, self.context)
        allowed = ((side + 1, side, side, side * side), (2 * side, side, -1, side * side))
        if self.grid is not None and shape not in allowed:
            raise ModelError(
                f"a network for grids of {side}×{side} has {side} digits, then the mask or the digits as "
                f"clues, and a context of {side * side}; this one has {self.vocabulary} tokens, mask {self.mask_id}, a "
                f"text vocabulary of {self.text_vocabulary} and a context of {self.context}"
            )

    @property
    def kv_heads(self) -> int:
        return self.heads if self.key_value_heads is None else self.key_value_heads

    @property
    def head_size(self) -> int:
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def rotated(self) -> int:
        return self.head_size if self.rope_width is None else self.rope_width

    def experts_of(self, layer: int) -> Experts | None:
        """The mixture of a layer; None: it is dense."""
        experts = self.experts
        return None if experts is None or layer < experts.first_layer else experts


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a family's checkpoints call each part; parts of a block follow the `block` prefix."""

    embedding: str
    norm: str
    output: str
    block: str  # with {index}
    attention_norm: str
    qkv: tuple[str, ...]  # query, key and value, or one tensor of all; without .weight or .bias
    out: str
    feed_norm: str
    feed: tuple[str, str, str]  # gate, up and down
    query_norm: str = "q_norm.weight"
    key_norm: str = "k_norm.weight"


@dataclass(frozen=True, slots=True)
class Family:
    """Everything a loader needs to know about a family."""

    name: str
    model_types: tuple[str, ...]  # in config.json, compared in lower case
    read: Callable[[Config, Family, int], TransformerConfig]
    names: TensorNames
    end_tokens: tuple[str, ...]  # tokens that end an answer, beside the config's end of text
    options: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # of config.json, and what is supported
    mask_tokens: tuple[str, ...] = ()  # how the tokenizer may write the mask
    mask_id: int | None = None  # known from the authors' code, if no file states it
    architectures: tuple[str, ...] = ()  # tell families apart that share a model_type
    block: int | None = None  # block-causal with blocks of this size, unless config.json says
    causal_prefix: bool = False  # blocks count from the prompt's end, all before is read causally
    shift: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    context: int | None = None  # what it was trained on, where config.json promises more


_REQUIRED = object()


def integer(config: Config, *names: str, default: Any = _REQUIRED) -> Any:
    """The first of these numbers that config.json states; null counts as absent."""
    return _stated(config, names, default, int, "a whole number")


def real(config: Config, *names: str, default: Any = _REQUIRED) -> Any:
    """As `integer`, of numbers that need not be whole."""
    value = _stated(config, names, default, int | float, "a number")
    if value is not default and not -LARGEST_NUMBER < value < LARGEST_NUMBER:
        raise ModelError(f"config.json needs a number {names[0]!r}; it has {short_repr(value)}")
    return value if value is default else float(value)


def flag(config: Config, *names: str, default: bool = False) -> bool:
    """The first of these truth values that config.json states."""
    return bool(_stated(config, names, default, bool, "true or false as"))


def _stated(config: Config, names: Sequence[str], default: Any, kind: Any, needed: str) -> Any:
    name = next((name for name in names if config.get(name) is not None), names[0])
    value = config.get(name)
    if value is None and default is not _REQUIRED:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ModelError(f"config.json needs {needed} {name!r}; it has {short_repr(value)}")
    return value


def refuse_unless(config: Config, family: str, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Name every option that our network does not have; an absent key means its usual value."""
    wrong = [
        f"{key}={short_repr(config[key])} (supported: {values[0]!r})"
        for key, values in allowed.items()
        if key in config and config[key] not in values
    ]
    if wrong:
        raise ModelError(
            f"the native network does not support this {family} config: {', '.join(wrong)}"
        )


def find_mask_id(
    config: Config, name: str, tokenizer: Any, family: Family | None, given: int | None
) -> int:
    """Which id stands for "not yet known": from config.json, else the tokenizer (one of transformers),
    else `given`, else what is known of the family.

    A wrong mask id gives fluent nonsense, so an unknown one is an error. A given id that contradicts
    the model's own files is refused; one that contradicts our table wins.
    """
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise SettingsError(f"mask_id={given!r} must be a token id, 0 or above")
    in_config: int | None = integer(config, "mask_token_id", "mask_id", default=None)
    in_tokenizer = None if tokenizer is None else tokenizer.mask_token_id
    if tokenizer is not None and in_tokenizer is None and family is not None:
        vocabulary = tokenizer.get_vocab()
        in_tokenizer = next((vocabulary[t] for t in family.mask_tokens if t in vocabulary), None)
    for source, stated in (("config.json", in_config), ("the tokenizer", in_tokenizer)):
        if stated is not None and given not in (None, stated):
            raise SettingsError(
                f"mask_id={given} contradicts {source} of {name}, which states {stated}; leave "
                "mask_id out"
            )
        if stated is not None:
            return int(stated)
    mask_id = family.mask_id if given is None and family else given
    if mask_id is None:
        raise ModelError(
            f"neither config.json nor the tokenizer of {name} states a mask token; if it is a "
            "masked diffusion model, pass mask_id=… (--load mask_id=…)"
        )
    return mask_id
