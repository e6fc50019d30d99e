"""What is read with `tokenizers` alone equals what transformers makes of the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from s3dlm.errors import PromptError
from s3dlm.models.base import Turn
from s3dlm.models.folder import BUNDLED
from s3dlm.models.plain_tokenizer import PlainTokenizer, read_plain
from s3dlm.models.tokenizer import TextTokenizer, load_tokenizer
from tests.models.checkpoints import edit_json, write_tokenizer

TEXTS = [
    "",
    "Target: 15",
    " a  b\n",
    "é 日本 🙂",
    "<|endoftext|>x<|eot_id|> <|mdm_mask|>",
    "<|im_end|>",
]
TEMPLATES = [
    "{% for m in messages %}{{ m.role | upper }}: {{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}",
    "{%- set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}\n  {% if loop.last %}"
    "{{ ns.n }}{{ m | tojson }}{% continue %}{% endif %}{{ m.content }}{% endfor %}"
    "{% if tools is none and enable_thinking is false %}done{% endif %}",
    "{{ bos_token }}{{ dict(a='é<') | tojson(indent=1) }}{% if add_generation_prompt %}<a>{% endif %}",
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}ok",
]  # fmt: skip
TALKS = [
    [Turn("user", "hi <|eot_id|>")],
    [Turn("system", "be brief"), Turn("user", "1"), Turn("assistant", " 2 "), Turn("user", "é")],
]


def both(folder: Path) -> tuple[TextTokenizer, TextTokenizer]:
    ours = load_tokenizer(folder)
    assert isinstance(ours.inner, PlainTokenizer)
    return ours, TextTokenizer(transformers.PreTrainedTokenizerFast.from_pretrained(folder))


def said(tokenizer: TextTokenizer, turns: list[Turn]) -> object:
    try:
        return tokenizer.converse(turns, "so")
    except PromptError as error:
        return str(error)


def check_equal(folder: Path) -> None:
    ours, theirs = both(folder)
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    for turns in TALKS:
        assert said(ours, turns) == said(theirs, turns)
    assert ours.end_ids([3], ["<|eot_id|>", "b"]) == theirs.end_ids([3], ["<|eot_id|>", "b"])
    assert ours.inner.mask_token_id == theirs.inner.mask_token_id
    assert ours.inner.get_vocab() == theirs.inner.get_vocab()
    assert ours.has_chat_template == theirs.has_chat_template


def test_the_bundled_model() -> None:
    check_equal(BUNDLED["tiny"])


@pytest.mark.parametrize("template", [None, *TEMPLATES], ids=range(5))
def test_templates(template: str | None, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template)
    check_equal(tmp_path)


def test_a_template_of_its_own_file_comes_first(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TEMPLATES[0])
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[2])
    check_equal(tmp_path)


def token(content: str, **flags: bool) -> dict[str, Any]:
    plain = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    return {"content": content, "special": True, **plain, **flags}


def added(folder: Path) -> dict[str, Any]:
    stored = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return {str(each["id"]): token(each["content"], special=each["special"]) for each in stored}


def test_tokens_that_are_there_anyway(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TEMPLATES[0])
    known = added(tmp_path)
    texts = [each["content"] for each in known.values()]
    edit_json(
        tmp_path / "tokenizer_config.json", added_tokens_decoder=known,
        additional_special_tokens=texts, pad_token={"__type": "AddedToken", **next(iter(known.values()))},
    )  # fmt: skip
    (tmp_path / "special_tokens_map.json").write_text("{}")  # not read beside the decoder
    check_equal(tmp_path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "an unknown entry": lambda f: edit_json(f / "tokenizer_config.json", do_lower_case=True),
    "a new token": lambda f: edit_json(f / "tokenizer_config.json", pad_token="<new>"),
    "other flags": lambda f: edit_json(
        f / "tokenizer_config.json",
        added_tokens_decoder={key: each | {"lstrip": True} for key, each in added(f).items()},
    ),
    "another id": lambda f: edit_json(
        f / "tokenizer_config.json",
        added_tokens_decoder={str(int(key) + 1): each for key, each in added(f).items()},
    ),
    "several templates": lambda f: edit_json(
        f / "tokenizer_config.json", chat_template=[{"name": "default", "template": "x"}]
    ),
    "a tag of transformers": lambda f: edit_json(
        f / "tokenizer_config.json", chat_template="{% generation %}x{% endgeneration %}"
    ),
    "another file": lambda f: (f / "special_tokens_map.json").write_text("{}"),
    "truncation": lambda f: edit_json(
        f / "tokenizer.json",
        truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_might_differ_is_left_to_transformers(change: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TEMPLATES[0])
    assert read_plain(tmp_path) is not None
    CHANGES[change](tmp_path)
    assert read_plain(tmp_path) is None


@pytest.mark.parametrize(
    "template",
    ["{{ messages.__class__.mro() }}", "{{ ''['__cl' + 'ass__'].mro() }}", "{{ dict.__globals__.x }}", "{{ messages.append(1) }}"],
)  # fmt: skip
def test_templates_do_not_reach_python(template: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template)
    ours, theirs = both(tmp_path)
    assert type(said(ours, TALKS[0])) is type(said(theirs, TALKS[0])) is str  # an error
