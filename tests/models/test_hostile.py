"""Whatever is in a model folder, the worst is one clear line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz import counts
from tests.models.checkpoints import LLADA, llada_tensors, write_folder
from tests.models.hostile import BYTES, TEMPLATES, make, use
from tests.models.references import folder_of


@pytest.mark.filterwarnings("ignore")
@counts(20, 1000)
def test_hostile_folders_end_in_one_line(count: int, tmp_path: Path) -> None:
    goods = [
        write_folder(tmp_path / "llada", LLADA, llada_tensors(LLADA)),
        folder_of("dream", tmp_path / "dream"),
    ]
    refused = 0
    for seed in range(count):
        folder = tmp_path / str(seed)
        make(goods[seed % 2], folder, seed)
        said = use(folder)
        refused += said is not None
        assert said is None or ("\n" not in said and len(said) < 900), (seed, said)
        shutil.rmtree(folder)
    assert refused > count / 2


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_a_hostile_chat_template_ends(template: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", LLADA, llada_tensors(LLADA), template=template)
    said = use(folder)
    assert said is None or ("\n" not in said and len(said) < 900)


@pytest.mark.parametrize(
    "name",
    ["calibration.json", "s3dlm.json", "config.json", "tokenizer.json", "tokenizer_config.json",
     "model.safetensors.index.json"],
)  # fmt: skip
def test_files_of_any_bytes_are_refused(name: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", LLADA, llada_tensors(LLADA))
    huge = b'{"fits": [{"weights": {"score": 1%s}}]}' % (b"0" * 400)
    for content in (*BYTES, *[huge] * (name == "calibration.json")):
        (folder / name).write_bytes(content)
        said = use(folder)
        assert said is not None, content[:20]
        assert name in said
        assert len(said) < 900
