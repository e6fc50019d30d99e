"""The shape of the native network, as plain data.

Kept free of torch, so that families and their limits can be listed at once, and so that a hostile
config.json is refused before any memory is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from s3dlm.errors import SettingsError

# Larger than any published model, small enough that a product of two cannot exhaust a machine
# before the shapes have been compared with the weight files.
LIMITS = {
    "vocabulary": 2_000_000,
    "width": 65_536,
    "layers": 512,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": 4096,
    "hidden": 1_000_000,
    "context": 4_194_304,
}


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward layer."""

    count: int
    chosen: int  # experts per token
    hidden: int  # inner width of each expert
    shared: int = 0  # inner width of the expert that every token uses; 0: none
    first_layer: int = 0  # layers before it are dense
    sigmoid: bool = False  # router: sigmoid with a bias used for choosing only, else softmax
    groups: int = 1  # experts compete in groups, of which the best are kept
    kept_groups: int = 1
    renormalised: bool = False  # whether the weights of the chosen experts add up to one
    scale: float = 1.0  # of the routed experts' sum

    def __post_init__(self) -> None:
        for name, limit in (("count", 4096), ("hidden", LIMITS["hidden"]), ("groups", 4096)):
            _whole(name, getattr(self, name), limit)
        _whole("chosen", self.chosen, self.count)
        _whole("kept_groups", self.kept_groups, self.groups)
        for name in ("shared", "first_layer"):
            _whole(name, getattr(self, name), LIMITS["hidden"], least=0)
        _number("scale", self.scale)
        if self.count % self.groups:
            raise SettingsError(f"{self.count} experts cannot form {self.groups} equal groups")
        if self.chosen > self.count // self.groups * self.kept_groups:
            raise SettingsError(
                f"{self.chosen} experts per token, but {self.kept_groups} of {self.groups} groups "
                f"hold only {self.count // self.groups * self.kept_groups}"
            )
        if self.groups > 1 and self.count // self.groups < 2:
            raise SettingsError("a group of experts needs at least two members")


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The shape of a network; two configs that are equal hold the same tensors."""

    vocabulary: int  # rows of the embedding, and logits per position
    width: int
    layers: int
    heads: int
    hidden: int  # inner width of SwiGLU
    mask_id: int
    context: int
    key_value_heads: int | None = None  # None: as many as heads
    head_width: int | None = None  # None: width / heads
    rope_theta: float = 10_000.0
    rope_width: int | None = None  # leading part of each head that is rotated; None: all of it
    norm_epsilon: float = 1e-5
    qkv_bias: bool = False
    qk_norm: bool = False  # RMSNorm on each head's query and key
    tied: bool = False  # the head is the embedding
    causal_block: int | None = None  # a position sees its own block of this size and earlier ones
    shift: bool = False  # position i is predicted by the features of position i − 1
    experts: Experts | None = None
    text_vocabulary: int | None = None  # ids from here on are no text and are never predicted

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            if name not in ("kv_heads", "head_size"):
                _whole(name, getattr(self, name), limit)
        for name in ("key_value_heads", "head_width", "rope_width", "causal_block"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), LIMITS["context"])
        if self.text_vocabulary is not None:
            _whole("text_vocabulary", self.text_vocabulary, self.vocabulary)
        for name in ("rope_theta", "norm_epsilon"):
            _number(name, getattr(self, name))
        if self.head_width is None and self.width % self.heads:
            raise SettingsError(f"width={self.width} is not a multiple of heads={self.heads}")
        for name in ("kv_heads", "head_size"):
            _whole(name, getattr(self, name), LIMITS[name])
        self._check_heads()

    def _check_heads(self) -> None:
        if self.heads % self.kv_heads:
            raise SettingsError(
                f"heads={self.heads} is not a multiple of key_value_heads={self.kv_heads}"
            )
        if self.rotated % 2 or self.rotated > self.head_size:
            raise SettingsError(
                f"{self.rotated} of {self.head_size} positions of a head are rotated; rotary "
                "positions come in pairs, so this must be even and fit the head"
            )
        if isinstance(self.mask_id, bool) or not isinstance(self.mask_id, int):
            raise SettingsError(f"mask_id={self.mask_id!r} is not a whole number")
        if not 0 <= self.mask_id < self.vocabulary:
            raise SettingsError(f"mask_id={self.mask_id} is outside 0..{self.vocabulary - 1}")

    @property
    def kv_heads(self) -> int:
        return self.heads if self.key_value_heads is None else self.key_value_heads

    @property
    def head_size(self) -> int:
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def rotated(self) -> int:
        return self.head_size if self.rope_width is None else self.rope_width

    def is_mixture(self, layer: int) -> bool:
        return self.experts is not None and layer >= self.experts.first_layer


def _whole(name: str, value: object, most: int, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingsError(f"{name}={short(value)} must be a whole number from {least} to {most}")


def _number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e30:
        raise SettingsError(f"{name}={short(value)} must be a number from 0 to 1e30")


def short(value: object) -> str:
    """A value from a file as an error shows it."""
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."
