"""Which id stands for "not yet known".

Some checkpoints state it in config.json, some only in the tokenizer, some nowhere but in their
authors' code. A wrong mask id gives fluent nonsense, so an unknown one is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.config import short
from s3dlm.models.family import Config, Family

FIELDS = ("mask_token_id", "mask_id")


def stated_mask_id(config: Config, family: Family) -> int:
    """The mask id without a look at the tokenizer."""
    return find_mask_id(config, family.name, tokenizer=None, family=family, given=None)


def find_mask_id(
    config: Config, name: str, *, tokenizer: Any, family: Family | None, given: int | None
) -> int:
    """From config.json, else the tokenizer, else what is known of the family, else `given`.

    A given id that contradicts the model's own files is refused; one that contradicts our table
    wins.
    """
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise SettingsError(f"mask_id={given!r} must be a token id, 0 or above")
    for source, found in (
        ("config.json", _from_config(config)),
        ("the tokenizer", _from_tokenizer(tokenizer, family.mask_tokens if family else ())),
    ):
        if found is not None:
            if given not in (None, found):
                raise SettingsError(
                    f"mask_id={given} contradicts {source} of {name}, which states {found}; leave "
                    "mask_id out"
                )
            return found
    known = given if given is not None else family.mask_id if family else None
    if known is None:
        raise ModelError(
            f"neither config.json nor the tokenizer of {name} states a mask token; if it is a "
            "masked diffusion model, pass mask_id=… (--mask-id)"
        )
    return known


def mask_id_source(family: Family) -> str:
    """Where the id of a family comes from, for the list of models."""
    table = "" if family.mask_id is None else f", else {family.mask_id}"
    return f"config.json, else tokenizer{table}"


def _from_config(config: Config) -> int | None:
    for field in FIELDS:
        value = config.get(field)
        if isinstance(value, bool) or (value is not None and not isinstance(value, int)):
            raise ModelError(f"config.json needs a token id as {field!r}; it has {short(value)}")
        if value is not None:
            return value
    return None


def _from_tokenizer(tokenizer: Any, texts: Iterable[str]) -> int | None:
    if tokenizer is None:
        return None
    if tokenizer.mask_token_id is not None:
        return int(tokenizer.mask_token_id)
    known = tokenizer.get_vocab()
    return next((known[text] for text in texts if text in known), None)
