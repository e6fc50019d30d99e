"""The tokenizer of `tiny` without transformers equals theirs, and templates stay in their sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from s3dlm.errors import PromptError
from s3dlm.models.base import Turn
from s3dlm.models.folder import BUNDLED
from s3dlm.models.tokenizer import PlainTokenizer, TextTokenizer, load_tokenizer
from tests.models.checkpoints import write_tokenizer

TEXTS = [
    "",
    "Target: 15",
    " a  b\n",
    "é 日本 🙂",
    "<|endoftext|>x<|eot_id|> <|mdm_mask|>",
    "<|im_end|>",
]
TALKS = [
    [Turn("user", "hi <|eot_id|>")],
    [Turn("system", "be brief"), Turn("user", "1\n"), Turn("assistant", " 2 "), Turn("user", "é")],
]


def test_ids_texts_and_conversations_of_tiny_are_those_of_transformers() -> None:
    ours, folder = load_tokenizer(BUNDLED["tiny"]), BUNDLED["tiny"]
    assert isinstance(ours.inner, PlainTokenizer)
    theirs = TextTokenizer(transformers.PreTrainedTokenizerFast.from_pretrained(folder))
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    for turns in TALKS:
        assert ours.converse(turns, "so") == theirs.converse(turns, "so")
    assert ours.end_ids([3], ["<|eot_id|>", "b"]) == theirs.end_ids([3], ["<|eot_id|>", "b"])
    assert ours.inner.mask_token_id == theirs.inner.mask_token_id
    assert ours.inner.get_vocab() == theirs.inner.get_vocab()


@pytest.mark.parametrize(
    "template",
    ["{{ messages.__class__.mro() }}", "{{ ''['__cl' + 'ass__'].mro() }}", "{{ dict.__globals__.x }}", "{{ messages.append(1) }}",
     "{{ raise_exception('System role not supported') }}"],
)  # fmt: skip
def test_templates_do_not_reach_python(template: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template)
    with pytest.raises(PromptError, match="does not support turns of user"):
        load_tokenizer(tmp_path).converse(TALKS[0])
