"""Folders and names to models: what works, and what is said when it does not."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from s3dlm.cli import main as cli
from s3dlm.cli.options import LOADING
from s3dlm.errors import ModelError, SettingsError
from s3dlm.evaluation.manifest import fingerprint
from s3dlm.models import families, registry
from s3dlm.models.base import Model
from s3dlm.models.registry import load
from s3dlm.models.transformer import Transformer, TransformerConfig
from tests.models.checkpoints import (
    LLADA,
    SPECIAL,
    byte_vocabulary,
    llada_tensors,
    write_folder,
)
from tests.models.references import folder_of, loaded
from tools.networks import export, llada_config

ROW = [3, 1, 4, 259, 259, 9, 2, 6]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "llada", LLADA, llada_tensors(LLADA), shards=3)


def logits(model: Model, row: list[int]) -> torch.Tensor:
    return model.denoiser.head(model.denoiser.encode(torch.tensor([row]))[0])


def test_a_folder_says_what_its_model_is_and_shards_are_one_file(
    folder: Path, tmp_path: Path
) -> None:
    model = load(str(folder))
    assert model.name == str(folder)
    assert model.defaults.prompt_style == "d1"
    assert model.end_ids == {257, 258}
    stated = (model.denoiser.mask_id, model.denoiser.vocabulary, model.denoiser.context)
    assert stated == (259, 320, 64)
    whole = write_folder(tmp_path / "whole", LLADA, llada_tensors(LLADA))
    assert torch.equal(logits(model, ROW), logits(load(str(whole)), ROW))
    with pytest.raises(ModelError, match="65 tokens does not fit the model's context of 64"):
        model.denoiser.encode(torch.zeros(1, 65, dtype=torch.int64))


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_precision_weights_load_into_the_chosen_dtype(
    stored: torch.dtype, tmp_path: Path
) -> None:
    tensors = {name: tensor.to(stored) for name, tensor in llada_tensors(LLADA).items()}
    folder = write_folder(tmp_path / "half", LLADA, tensors)
    network = load(str(folder)).denoiser
    assert isinstance(network, Transformer)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    back = export(network, families.LLADA_NAMES)
    assert all(torch.equal(back[name], tensors[name].float()) for name in tensors)
    other = load(str(folder), dtype="bfloat16").denoiser
    assert isinstance(other, Transformer)
    assert {parameter.dtype for parameter in other.parameters()} == {torch.bfloat16}


def test_a_dream_folder_loads_without_its_own_code(tmp_path: Path) -> None:
    folder = folder_of("dream", tmp_path / "dream")
    (folder / "tokenizer.json").unlink()  # the hub's Dream has only Qwen's two files
    (folder / "vocab.json").write_text(json.dumps(byte_vocabulary()))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    stated = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "added_tokens_decoder": {
            str(i): {"content": text, "special": True} | flags
            for i, text in sorted(SPECIAL.items())
        },
        "mask_token": "<|mdm_mask|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    model = load(str(folder))
    assert torch.equal(logits(model, ROW), logits(loaded("dream"), ROW))
    assert model.denoiser.context == 2048
    text = "Grüße, 12 + 7!"
    assert model.tokenizer.decode(model.tokenizer.encode(text)) == text
    assert model.tokenizer.encode("a<|mdm_mask|>")[-1] == 259


def test_a_config_we_write_is_read_back_as_it_was() -> None:
    config = TransformerConfig(
        vocabulary=512, width=96, layers=5, heads=6, hidden=200, mask_id=7, context=300,
        key_value_heads=3, rope_theta=123.0, norm_epsilon=1e-6, qkv_bias=True, tied=True,
    )  # fmt: skip
    stored = json.loads(json.dumps(llada_config(config, end_id=2)))
    assert families.read_llada(stored, families.LLADA, stored["mask_token_id"]) == config


# The tokenizer


def test_chat_is_the_template_then_the_prefill_or_the_bare_text(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = load(str(folder)).tokenizer
    ids = tokenizer.chat("2 + 2?", prefill="<reasoning>")
    expected = "<|startoftext|>[user] 2 + 2?<|eot_id|>[assistant] <reasoning>"
    assert tokenizer.decode(ids) == expected
    assert ids == tokenizer.chat("2 + 2?") + tokenizer.encode("<reasoning>")
    base = write_folder(tmp_path / "base", LLADA, llada_tensors(LLADA), template=None)
    bare = load(str(base)).tokenizer
    assert bare.decode(bare.chat("Once", " upon")) == "Once upon"


# What is wrong is named


def without(file: Path) -> None:
    file.unlink()


def not_safetensors(file: Path) -> None:
    file.write_bytes(b"\x01" * 100)


def one_more(file: Path) -> None:
    save_file(load_file(file) | {"surprise": torch.zeros(1)}, file)


def elsewhere(file: Path) -> None:
    index = {"weight_map": {"x": "../../secret.safetensors"}}
    (file.parent / "model.safetensors.index.json").write_text(json.dumps(index))


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.exit, ("a pickle was opened",))


def pickled(file: Path) -> None:
    for each in file.parent.glob("model*"):
        each.unlink()
    (file.parent / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without, "1 of 3 shards .* model-00002-of-00003"),
        (not_safetensors, "model-00002.* is not a readable"),
        (one_more, "1 unexpected: surprise"),
        (elsewhere, "beside it"),
        (pickled, r"pickled weights \(pytorch_model.bin\).*safetensors"),
    ],
)
def test_wrong_weights_are_named(change: Callable[[Path], None], said: str, folder: Path) -> None:
    change(folder / "model-00002-of-00003.safetensors")
    with pytest.raises(ModelError, match=said):
        load(str(folder))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("tiny", {"dtype": "int8"}, "dtype='int8'"),
        ("tiny", {"device": "gpu"}, "device='gpu' is unknown"),
        ("tiny", {"device": "cuda"}, "sees no GPU"),
        ("tinny", {}, "mean 'tiny'"),
        ("./nowhere", {}, "no folder|neither"),
    ],
)
def test_unknown_names_and_options_are_answered_with_a_hint(
    name: str, options: dict[str, Any], said: str
) -> None:
    if options == {"device": "cuda"} and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((ModelError, SettingsError), match=said):
        load(name, **options)


# Broken and hostile files


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(name: str, folder: Path) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match="not a regular file"):
        load(str(folder))


# Fingerprints and revisions


def test_a_fingerprint_covers_every_value_of_every_tensor(folder: Path) -> None:
    model = load(str(folder))
    original = fingerprint(model)
    assert fingerprint(load(str(folder))) == original
    assert fingerprint(load(str(folder), dtype="bfloat16")) != original
    for name, tensor in model.denoiser.tensors():
        flat = tensor.view(-1)
        middle = len(flat) // 2
        flat[middle] += 1.0
        assert fingerprint(model) != original, name
        flat[middle] -= 1.0


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Caches two commits of a model, of which the main branch is at the second."""
    from huggingface_hub import _snapshot_download, constants

    def fill(name: str) -> Path:
        home = tmp_path / f"models--{name.replace('/', '--')}"
        for commit, seed in (("a" * 40, 0), ("b" * 40, 1)):
            write_folder(home / "snapshots" / commit, LLADA, llada_tensors(LLADA, seed))
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("b" * 40)
        return home

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(_snapshot_download.constants, "HF_HUB_CACHE", str(tmp_path))
    return fill


def test_a_revision_pins_a_snapshot(hub_cache: Callable[[str], Path]) -> None:
    hub_cache("some/llada")
    newest, pinned = load("some/llada"), load(f"some/llada@{'a' * 40}")
    assert newest.name == "some/llada"
    assert (newest.revision, pinned.revision) == ("b" * 40, "a" * 40)
    assert not torch.equal(logits(newest, ROW), logits(pinned, ROW))
    with pytest.raises(ModelError, match="some/llada at revision cccc"):
        load(f"some/llada@{'c' * 40}")


def test_the_list_of_models_shows_the_revision_on_disk(
    hub_cache: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub_cache("GSAI-ML/LLaDA-8B-Instruct")
    monkeypatch.setenv("COLUMNS", "300")  # one line per model
    monkeypatch.setattr(sys, "argv", ["s3dlm", "list", "models"])
    with contextlib.suppress(SystemExit):
        cli.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "on disk (" in line]
    assert "LLaDA-8B-Instruct" in line
    assert "b" * 12 in line


# Names


def test_a_hub_id_fails_at_once_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at the network and without a pause before another attempt."""
    import huggingface_hub.constants

    tried: list[tuple[object, ...]] = []

    def note(*arguments: object, **_: object) -> None:
        tried.append(arguments)
        raise OSError("there is no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "getaddrinfo", note)
    monkeypatch.setattr(time, "sleep", note)
    with pytest.raises(ModelError, match="hf download nobody/no-such-model"):
        load("nobody/no-such-model")
    assert tried == []


def test_tiny_is_a_llada_folder_with_its_own_defaults(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.BUNDLED, "tiny", tmp_path)
    with pytest.raises(ModelError, match="tools/tiny"):
        load("tiny")
    (folder / "model.safetensors.index.json").unlink()
    save_file(llada_tensors(LLADA), folder / "model.safetensors")
    (folder / "s3dlm.json").write_text(json.dumps({"prompt_style": "tiny"}))
    monkeypatch.setitem(registry.BUNDLED, "tiny", folder)
    model = load("tiny")
    assert (model.name, model.defaults.prompt_style) == ("tiny", "tiny")


def test_every_way_to_load_has_its_name_in_the_shell() -> None:
    from_flags = {"name", "device", "progress"}  # --model, --device, --quiet
    assert set(LOADING) == set(inspect.signature(registry.load).parameters) - from_flags
