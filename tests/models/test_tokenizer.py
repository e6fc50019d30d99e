"""What is read with `tokenizers` alone equals what transformers makes of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from s3dlm.errors import PromptError
from s3dlm.models.base import Turn
from s3dlm.models.folder import BUNDLED
from s3dlm.models.tokenizer import PlainTokenizer, TextTokenizer, load_tokenizer, read_plain
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


@pytest.mark.parametrize("template", ["tiny", "a file", None, *TEMPLATES], ids=range(7))
def test_ids_texts_and_conversations_are_those_of_transformers(
    template: str | None, tmp_path: Path
) -> None:
    if template == "a file":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATES[2])
        template = TEMPLATES[0]  # comes second
    if template != "tiny":
        write_tokenizer(tmp_path, template)
    ours, theirs = both(BUNDLED["tiny"] if template == "tiny" else tmp_path)
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


GENERATION = "{% generation %}x{% endgeneration %}"  # a tag of transformers
TRUNCATION = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown entry": ("tokenizer_config.json", {"do_lower_case": True}),
    "a new token": ("tokenizer_config.json", {"pad_token": "<new>"}),
    "a token with flags": ("tokenizer_config.json", {"pad_token": {"content": "<|endoftext|>"}}),
    "several templates": ("tokenizer_config.json", {"chat_template": [{"name": "x", "template": ""}]}),
    "a tag of transformers": ("tokenizer_config.json", {"chat_template": GENERATION}),
    "another file": ("special_tokens_map.json", {}),
    "truncation": ("tokenizer.json", {"truncation": TRUNCATION}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_might_differ_is_left_to_transformers(change: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TEMPLATES[0])
    assert read_plain(tmp_path) is not None
    name, values = CHANGES[change]
    if not values:
        (tmp_path / name).write_text("{}")
    edit_json(tmp_path / name, **values)
    assert read_plain(tmp_path) is None


@pytest.mark.parametrize(
    "template",
    ["{{ messages.__class__.mro() }}", "{{ ''['__cl' + 'ass__'].mro() }}", "{{ dict.__globals__.x }}", "{{ messages.append(1) }}"],
)  # fmt: skip
def test_templates_do_not_reach_python(template: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template)
    ours, theirs = both(tmp_path)
    assert type(said(ours, TALKS[0])) is type(said(theirs, TALKS[0])) is str  # an error
