"""LoRA adapters, merged when a model is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save, save_file

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.folder import BUNDLED

TINY = BUNDLED["tiny"]
BLOCK = "model.transformer.blocks.0"
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": "tiny"}


def adapter(
    folder: Path, prefix: str = "base_model.model.", infix: str = "", **changes: object
) -> Path:
    """A random adapter of rank 4 for two matrices of the bundled model, as peft writes it."""
    folder.mkdir()
    torch.manual_seed(1)
    stored, tensors = load_file(TINY / "model.safetensors"), {}
    for name in (f"{BLOCK}.q_proj", f"{BLOCK}.ff_out"):
        rows, columns = stored[f"{name}.weight"].shape
        tensors[f"{prefix}{name}.lora_A{infix}.weight"] = torch.randn(4, columns) / 8
        tensors[f"{prefix}{name}.lora_B{infix}.weight"] = torch.randn(rows, 4) / 8
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))
    return folder


def merged(folder: Path, made: Path, scale: float) -> Path:
    """The bundled model with the adapter added to its files by hand."""
    shutil.copytree(TINY, folder)
    weights = {n: tensor.float() for n, tensor in load_file(folder / "model.safetensors").items()}
    factors = load_file(made / "adapter_model.safetensors")
    for key in [key for key in factors if ".lora_A" in key]:
        name = key.partition(".lora_A")[0].removeprefix("base_model.model.")
        weights[f"{name}.weight"] += scale * factors[key.replace("lora_A", "lora_B")] @ factors[key]
    save_file(weights, folder / "model.safetensors")
    return folder


def features(model: s3dlm.Model) -> torch.Tensor:
    tokens = torch.tensor([model.tokenizer.chat("What is 3 + 4?")])
    with torch.inference_mode():
        return model.denoiser.encode(tokens)


@pytest.mark.parametrize(("changes", "scale"), [({}, 2.0), ({"use_rslora": True}, 4.0)])
def test_an_adapter_is_added_to_the_weights(
    tmp_path: Path, changes: dict[str, object], scale: float
) -> None:
    made = adapter(tmp_path / "adapter", **changes)
    loaded = s3dlm.load("tiny", adapter=str(made))
    by_hand = s3dlm.load(str(merged(tmp_path / "whole", made, scale)))
    torch.testing.assert_close(features(loaded), features(by_hand))
    assert not torch.allclose(features(loaded), features(s3dlm.load("tiny")))


WEIGHTS, STATED = "adapter_model.safetensors", "adapter_config.json"
REFUSED: dict[str, tuple[str, bytes | None, str]] = {  # a file, its new contents, what is said
    "no weights": (WEIGHTS, None, "pickles are not opened"),
    "no config": (STATED, None, "no adapter_config.json"),
    "no scale": (STATED, b'{"r": 4}', "no lora_alpha"),
    "DoRA": (STATED, b'{"use_dora": true}', "use_dora"),
    "no safetensors": (WEIGHTS, b"x", "not a readable"),
    "half a pair": (WEIGHTS, save({"a.lora_A.weight": torch.ones(2, 3)}), "no two factors"),
    "another model's": (
        WEIGHTS, save({"score.weight": torch.ones(2, 3)}),
        "does not fit the model: 1 of its 1 weights.*score.weight'; it was made for 'tiny'",
    ),
    "a huge scale": (STATED, b'{"lora_alpha": 1%s}' % (b"0" * 400), "lora_alpha"),
    "more digits than are read": (STATED, b'{"lora_alpha": 1%s}' % (b"0" * 5000), "cannot be read as JSON"),
    "another kind": (STATED, b'{"lora_alpha": 8, "peft_type": "IA3"}', "IA3"),
    **{
        f"scale {alpha.decode()}": (STATED, b'{"lora_alpha": %s}' % alpha, "lora_alpha")
        for alpha in (b"NaN", b"Infinity", b"1e400", b"true", b'"8"', b"0", b"-8", b"null")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_adapter_that_cannot_be_merged_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    made, (name, contents, message) = adapter(tmp_path / "adapter"), REFUSED[case]
    (made / name).unlink()
    if contents is not None:
        (made / name).write_bytes(contents)
    with pytest.raises(ModelError, match=message) as told:
        s3dlm.load("tiny", adapter=str(made))
    assert "\n" not in str(told.value)


Q = f"base_model.model.{BLOCK}.q_proj"
A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: {}, id="no tensors"),
        pytest.param(lambda t: {n: x * 0 for n, x in t.items()}, id="zeros"),
        pytest.param(lambda t: {n: x.long() for n, x in t.items()}, id="integers"),
        pytest.param(lambda t: {n: x > 0 for n, x in t.items()}, id="booleans"),
        pytest.param(lambda t: {n: x.to(torch.complex64) for n, x in t.items()}, id="complex"),
        pytest.param(lambda t: {**t, A: t[A] * float("nan")}, id="NaN"),
        pytest.param(lambda t: {**t, A: t[A] * float("inf")}, id="infinity"),
        pytest.param(lambda t: {**t, A: t[A] * 1e30, B: t[B] * 1e30}, id="an infinite product"),
        pytest.param(lambda t: {**t, A: t[A][:0], B: t[B][:, :0]}, id="rank 0"),
        pytest.param(lambda t: {**t, A: torch.tensor(1.0)}, id="a scalar A"),
        pytest.param(lambda t: {**t, B: torch.tensor(1.0)}, id="a scalar B"),
        pytest.param(lambda t: {**t, A: torch.ones(4), B: torch.ones(4)}, id="vectors"),
        pytest.param(lambda t: {**t, A: torch.ones(4, 2, 2), B: torch.ones(3, 3, 4)}, id="cubes"),
        pytest.param(lambda t: {**t, A.removeprefix("base_model.model."): t[A] + 1}, id="twice"),
        pytest.param(lambda t: {**t, f"{Q}.weight": torch.ones(len(t[B]), t[A].shape[1])}, id="whole, too"),
        pytest.param(lambda t: {"\x1b[31m\nX.weight": torch.ones(1)}, id="a name that is no name"),
    ],
)  # fmt: skip
def test_hostile_and_useless_weights_are_one_line(tmp_path: Path, change: object) -> None:
    made = adapter(tmp_path / "adapter")
    tensors = change(load_file(made / "adapter_model.safetensors"))  # type: ignore[operator]
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, made / "adapter_model.safetensors")
    with pytest.raises(ModelError) as told:
        s3dlm.load("tiny", adapter=str(made))
    assert str(told.value).isprintable()


def test_an_adapter_that_is_nowhere() -> None:
    with pytest.raises(ModelError, match="adapter='nowhere' is neither a folder nor a hub id"):
        s3dlm.load("tiny", adapter="nowhere")
