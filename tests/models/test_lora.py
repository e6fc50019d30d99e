"""LoRA adapters: merged when a model is loaded, and heads of reward models on diffusion models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import s3dlm
from s3dlm.errors import ModelError, VerifierError
from s3dlm.models.folder import BUNDLED
from s3dlm.models.transformer import Transformer
from s3dlm.verifier import as_verifier

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "pickles are not opened"),
        (lambda folder: (folder / "adapter_config.json").unlink(), "no adapter_config.json"),
        (lambda folder: (folder / "adapter_config.json").write_text('{"r": 4}'), "no lora_alpha"),
        (lambda folder: (folder / "adapter_config.json").write_text('{"use_dora": true}'), "use_dora"),
        (lambda folder: (folder / "adapter_model.safetensors").write_text("x"), "not a readable"),
        (
            lambda folder: save_file({"a.lora_A.weight": torch.ones(2, 3)}, folder / "adapter_model.safetensors"),
            "no two factors",
        ),
        (
            lambda folder: save_file({"score.weight": torch.ones(2, 3)}, folder / "adapter_model.safetensors"),
            "does not fit the model: 1 of its 1 weights.*score.weight'; it was made for 'tiny'",
        ),
    ],
)  # fmt: skip
def test_an_adapter_that_cannot_be_merged_is_refused(
    tmp_path: Path, change: object, message: str
) -> None:
    made = adapter(tmp_path / "adapter")
    change(made)  # type: ignore[operator]
    with pytest.raises(ModelError, match=message):
        s3dlm.load("tiny", adapter=str(made))


Q = f"base_model.model.{BLOCK}.q_proj"
A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        *((alpha, "lora_alpha") for alpha in ("NaN", "Infinity", "1e400", "true", '"8"', "0", "-8", "null")),
        ("1" + "0" * 400, "lora_alpha"),
        ("1" + "0" * 5000, "cannot be read as JSON"),
        ('8, "peft_type": "IA3"', "IA3"),
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_scale_that_is_no_number_is_one_line(tmp_path: Path, alpha: str, message: str) -> None:
    made = adapter(tmp_path / "adapter")
    (made / "adapter_config.json").write_text(f'{{"lora_alpha": {alpha}}}')
    with pytest.raises(ModelError, match=message) as told:
        s3dlm.load("tiny", adapter=str(made))
    assert "\n" not in str(told.value)


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


@pytest.mark.parametrize("pooled", ["mean", "last_token"])
@pytest.mark.parametrize("process", [False, True])
def test_a_reward_head_on_a_diffusion_model(tmp_path: Path, pooled: str, process: bool) -> None:
    """As published: factors named as in the trained module, `config.json`, and a head beside them."""
    made = adapter(tmp_path / "adapter")
    factors, width = load_file(made / "adapter_model.safetensors"), 0
    base = s3dlm.load(str(merged(tmp_path / "whole", made, 2.0)))
    assert isinstance(base.denoiser, Transformer)
    width = base.denoiser.config.width
    shapes = {"reward_head.weight": (1, width), "reward_head.bias": (1,)}
    if process:
        shapes = {"step_proj.0.weight": (6, 6), "step_proj.0.bias": (6,),
                  "reward_head.0.weight": (5, width + 6), "reward_head.0.bias": (5,),
                  "reward_head.2.weight": (1, 5), "reward_head.2.bias": (1,)}  # fmt: skip
    head = {name: torch.randn(shape) / 4 for name, shape in shapes.items()}
    published = tmp_path / "published"
    published.mkdir()
    inside = {
        f"backbone.{key.replace('.weight', '.default.weight')}": t for key, t in factors.items()
    }
    save_file({**inside, **head}, published / "adapter.safetensors")
    config = {"base_model": "tiny", "lora": {"r": 4, "alpha": 8}, "pool_strategy": pooled}
    (published / "config.json").write_text(json.dumps(config))
    texts = ["Step 1: 3 + 4 = 7", "so it is 8, or perhaps another one"]
    verifier = as_verifier(f"orm:{published}")
    found = verifier.score_batch(["What is 3 + 4?"] * 2, texts, [None, None])
    for text, score in zip(texts, found, strict=True):
        prefix, body = base.tokenizer.chat("What is 3 + 4?"), base.tokenizer.encode(text)
        with torch.inference_mode():
            own = base.denoiser.body(torch.tensor([prefix + body]), None)[0, len(prefix) :]
        x = own[-1] if pooled == "last_token" else own.mean(0)
        if process:
            step = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
            step = F.gelu(step @ head["step_proj.0.weight"].T + head["step_proj.0.bias"])
            x = torch.cat((x, step))
            x = F.gelu(x @ head["reward_head.0.weight"].T + head["reward_head.0.bias"])
            reward = (x @ head["reward_head.2.weight"].T + head["reward_head.2.bias"]).item()
        else:
            reward = (x @ head["reward_head.weight"].T + head["reward_head.bias"]).item()
        assert score.parts["reward"] == pytest.approx(reward, abs=1e-4)
        assert score.total == pytest.approx(torch.sigmoid(torch.tensor(reward)).item(), abs=1e-4)


def test_an_adapter_without_a_head_is_no_reward_model(tmp_path: Path) -> None:
    with pytest.raises(VerifierError, match="no reward model"):
        as_verifier(f"orm:{adapter(tmp_path / 'adapter')}")


def test_an_adapter_that_is_nowhere() -> None:
    with pytest.raises(ModelError, match="adapter='nowhere' is neither a folder nor a hub id"):
        s3dlm.load("tiny", adapter="nowhere")
