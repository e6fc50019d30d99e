"""How rotary positions are written in a config.json: at its top, or one level down."""

from __future__ import annotations

import math

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.family import Config, Yarn, flag, integer, real


def read_rope(config: Config, family: str) -> tuple[float, int | None, Yarn | None]:
    """θ, how much of a head is rotated (None: all of it), and YaRN."""
    inner = config.get("rope_parameters") or {}
    if not isinstance(inner, dict):
        raise ModelError(
            f"config.json needs an object as 'rope_parameters'; it has {short_repr(inner)}"
        )
    scaling = config.get("rope_scaling") or inner
    known = isinstance(scaling, dict)
    kind = scaling.get("rope_type", scaling.get("type")) if known else scaling
    if not known or kind not in (None, "default", "yarn"):
        raise ModelError(
            f"the native network does not support this {family} config: rope_scaling of type "
            f"{short_repr(kind)} (supported: yarn)"
        )
    stated = {**config, **inner, **scaling}
    theta = real(stated, "rope_theta")
    yarn = _yarn(scaling, config, scaled=kind == "yarn")
    part = real(stated, "partial_rotary_factor", default=1.0)
    if not 0 < part <= 1:
        raise ModelError(f"config.json: partial_rotary_factor={part} must be above 0, at most 1")
    if part == 1:
        return theta, None, yarn
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    size = integer(config, "head_dim", default=None) or width // max(heads, 1)
    return theta, int(size * part), yarn


def _yarn(scaling: Config, config: Config, *, scaled: bool) -> Yarn | None:
    """With the defaults of transformers; queries may grow without scaled positions, too."""

    def stated(name: str, default: float) -> float:
        value: float = real(scaling, name, default=default)
        return value

    beta = stated("llama_4_scaling_beta", 0.0)
    if not scaled and not beta:
        return None
    context = integer(config, "max_position_embeddings")
    original = integer(scaling, "original_max_position_embeddings", default=context)
    original = integer(config, "original_max_position_embeddings", default=original)
    if not scaled:
        return Yarn(1.0, original, query_beta=beta)
    factor: float = real(scaling, "factor")

    def growth(weight: float) -> float:
        return 0.1 * weight * math.log(max(factor, 1.0)) + 1.0

    over, under = stated("mscale", 0.0), stated("mscale_all_dim", 0.0)
    attention = growth(over) / growth(under) if over and under else growth(1.0)
    return Yarn(
        factor=factor,
        original=original,
        fast=stated("beta_fast", 32.0) or 32.0,
        slow=stated("beta_slow", 1.0) or 1.0,
        attention=stated("attention_factor", attention),
        whole=flag(scaling, "truncate", default=True),
        query_beta=beta,
    )
