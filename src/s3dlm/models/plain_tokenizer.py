"""A small model's tokenizer read with `tokenizers` alone, because importing transformers takes as long as
importing torch.

What tokenizer.json does not hold, or what is not known to change nothing, is left to transformers
(`read_plain` returns None): results are the same either way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from s3dlm.models.folder import check_file, read_json

NAMED = {f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
WITHOUT_EFFECT = {"tokenizer_class", "model_max_length", "clean_up_tokenization_spaces"}
OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "additional_chat_templates")
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
LARGEST_TEMPLATE = 2**20  # bytes


class PlainTokenizer:
    """What `TextTokenizer` uses of a tokenizer of transformers."""

    def __init__(self, inner: Tokenizer, named: Mapping[str, str], template: str | None) -> None:
        self.inner = self.backend_tokenizer = inner
        self.named, self.chat_template = named, template
        self.eos_token_id, self.sep_token_id, self.mask_token_id = (
            inner.token_to_id(named[name]) if name in named else None
            for name in ("eos_token", "sep_token", "mask_token")
        )

    def get_vocab(self) -> dict[str, int]:
        return self.inner.get_vocab()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self.inner.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], **_: object) -> str:
        """The text, with special tokens and as it stands."""
        return self.inner.decode(ids, skip_special_tokens=False)

    def apply_chat_template(self, messages: list[dict[str, str]], **given: Any) -> str:
        """The text of a conversation."""
        values = {"tools": None, "documents": None, **self.named, **given}
        return _compiled(self.chat_template or "").render(messages=messages, **values)


def read_plain(folder: Path) -> PlainTokenizer | None:
    """The tokenizer of a model folder, unless transformers might make something else of it."""
    if not (folder / "tokenizer.json").is_file():
        return None
    stored, path = read_json(folder / "tokenizer.json", 2**28), folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    named = {name: config[name] for name in NAMED & config.keys() if config[name] is not None}
    known = {token["content"]: token for token in stored.get("added_tokens", ())}
    unusual = config.keys() - NAMED - WITHOUT_EFFECT - {"chat_template"}
    # A name whose token tokenizer.json has in another way would be added to it again.
    unusual |= {
        name
        for name, token in named.items()
        if not isinstance(token, str) or FLAGS.items() - known.get(token, {}).items()
    }
    if unusual or stored.get("truncation") or stored.get("padding"):
        return None
    template = config.get("chat_template")
    if (folder / "chat_template.jinja").is_file():
        check_file(folder / "chat_template.jinja", LARGEST_TEMPLATE)
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    tagged = isinstance(template, str) and re.search(r"%-?\s*generation", template)
    if tagged or not isinstance(template, str | None):
        return None
    if any((folder / name).exists() for name in OTHER_FILES):
        return None
    return PlainTokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")), named, template)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    """The environment that chat templates are written for; templates come from others, so it is a
    sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _json
    environment.globals |= {
        "raise_exception": _refuse, "dict": lambda *given, **n: dict(*given, **n),
        "strftime_now": lambda form: datetime.now().strftime(form),
    }  # fmt: skip
    return environment.from_string(template)
