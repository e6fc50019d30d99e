"""LoRA adapters, merged when a model is loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

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
Q = f"base_model.model.{BLOCK}.q_proj"
A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"
Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
REFUSED: dict[str, tuple[bytes | Change | None, str]] = {  # STATED's new contents or tensors, what is said
    "no config": (None, "no adapter_config.json"),
    "no scale": (b'{"r": 4}', "no lora_alpha"),
    "DoRA": (b'{"use_dora": true}', "use_dora"),
    "a huge scale": (b'{"lora_alpha": 1%s}' % (b"0" * 400), "lora_alpha"),
    "more digits than are read": (b'{"lora_alpha": 1%s}' % (b"0" * 5000), "cannot be read as JSON"),
    "another kind": (b'{"lora_alpha": 8, "peft_type": "IA3"}', "IA3"),
    **{
        f"scale {alpha.decode()}": (b'{"lora_alpha": %s}' % alpha, "lora_alpha")
        for alpha in (b"NaN", b"Infinity", b"1e400", b"true", b'"8"', b"0", b"-8", b"null")
    },
    "half a pair": (lambda t: {"a.lora_A.weight": torch.ones(2, 3)}, "no two factors"),
    "another model's": (
        lambda t: {"score.weight": torch.ones(2, 3)},
        "does not fit the model: 1 of its 1 weights.*score.weight'; it was made for 'tiny'",
    ),
    "no tensors": (lambda t: {}, "has no weights"),
    "zeros": (lambda t: {n: x * 0 for n, x in t.items()}, "changes nothing"),
    "integers": (lambda t: {n: x.long() for n, x in t.items()}, "no finite numbers"),
    "booleans": (lambda t: {n: x > 0 for n, x in t.items()}, "no finite numbers"),
    "complex": (lambda t: {n: x.to(torch.complex64) for n, x in t.items()}, "no finite numbers"),
    "NaN": (lambda t: {**t, A: t[A] * float("nan")}, "no finite numbers"),
    "infinity": (lambda t: {**t, A: t[A] * float("inf")}, "no finite numbers"),
    "an infinite product": (lambda t: {**t, A: t[A] * 1e30, B: t[B] * 1e30}, "not finite any more"),
    "rank 0": (lambda t: {**t, A: t[A][:0], B: t[B][:, :0]}, "no finite numbers"),
    "a scalar A": (lambda t: {**t, A: torch.tensor(1.0)}, "no two factors"),
    "a scalar B": (lambda t: {**t, B: torch.tensor(1.0)}, "no two factors"),
    "vectors": (lambda t: {**t, A: torch.ones(4), B: torch.ones(4)}, "no two factors"),
    "cubes": (lambda t: {**t, A: torch.ones(4, 2, 2), B: torch.ones(3, 3, 4)}, "no two factors"),
    "twice": (lambda t: {**t, A.removeprefix("base_model.model."): t[A] + 1}, "two weights of one name"),
    "whole, too": (lambda t: {**t, f"{Q}.weight": torch.ones(len(t[B]), t[A].shape[1])}, "nothing else"),
    "a name that is no name": (lambda t: {"\x1b[31m\nX.weight": torch.ones(1)}, "does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_adapter_that_cannot_be_merged_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    made, (change, message) = adapter(tmp_path / "adapter"), REFUSED[case]
    if callable(change):
        tensors = change(load_file(made / WEIGHTS))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, made / WEIGHTS)
    elif change is None:
        (made / STATED).unlink()
    else:
        (made / STATED).write_bytes(change)
    with pytest.raises(ModelError, match=message) as told:
        s3dlm.load("tiny", adapter=str(made))
    assert str(told.value).isprintable()


def test_weights_that_are_not_there_or_no_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="adapter='nowhere' is neither a folder nor a hub id"):
        s3dlm.load("tiny", adapter="nowhere")
    weights = adapter(tmp_path / "adapter") / WEIGHTS
    for content, said in ((b"x", "not a readable"), (None, "pickles are not opened")):
        weights.unlink()
        if content is not None:
            weights.write_bytes(content)
        with pytest.raises(ModelError, match=said):
            s3dlm.load("tiny", adapter=str(weights.parent))
