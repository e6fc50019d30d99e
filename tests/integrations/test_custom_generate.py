"""`model.generate(custom_generate=FOLDER)` is the engine's search, in transformers' clothes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError, PromptError, SettingsError
from s3dlm.integrations.custom_generate import SearchOutput, as_model, generate
from s3dlm.settings import METHODS, only_used
from tests.fakes import COUNTDOWN, END, MASK, ByteTokenizer, FakeDenoiser

SMALL = {"particles": 2, "branching": 2, "gen_length": 64, "steps": 8, "temperature": 1.0}


class Config(transformers.PretrainedConfig):  # type: ignore[misc]
    model_type = "fake_diffusion"

    def __init__(self, **others: Any) -> None:
        self.vocab_size, self.mask_token_id, self.max_position_embeddings = 258, MASK, 512
        super().__init__(eos_token_id=END, **others)


class HeldModel(transformers.PreTrainedModel, transformers.GenerationMixin):  # type: ignore[misc]
    """The fake denoiser as a user of transformers would hold it."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.fake = FakeDenoiser(COUNTDOWN)
        self.post_init()

    def forward(self, input_ids: Tensor) -> tuple[Tensor]:
        return (self.fake.encode(input_ids),)


class HeldTokenizer(ByteTokenizer):
    """The byte tokenizer with transformers' arguments."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return super().encode(text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: Any) -> str:
        plain = [int(i) for i in ids if not (skip_special_tokens and int(i) >= MASK)]
        return super().decode(plain)


TOKENIZER = HeldTokenizer()
QUESTIONS = ["Target: 24 Numbers: 6, 4, 12\n", "Target: 22 Numbers: 12, 6, 4, 1\n"]


@pytest.fixture(scope="module")
def model() -> HeldModel:
    return HeldModel(Config())


def padded(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Left-padded ids and their mask."""
    rows = [TOKENIZER.encode(text) for text in texts]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def test_the_exported_folder_works_with_the_models_own_generate(
    model: HeldModel, tmp_path: Path
) -> None:
    folder = tmp_path / "search"
    command = [sys.executable, "-m", "s3dlm.integrations.custom_generate", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_file()
    ids, mask = padded(QUESTIONS)
    arguments = {"attention_mask": mask, "tokenizer": TOKENIZER, "task": "countdown", **SMALL}
    sequences = model.generate(
        ids, custom_generate=str(folder), trust_remote_code=True, **arguments
    )
    assert torch.equal(sequences, generate(model, ids, **arguments))
    output = model.generate(
        ids, custom_generate=str(folder), trust_remote_code=True,
        return_dict_in_generate=True, **arguments,
    )  # fmt: skip
    assert isinstance(output, transformers.generation.GenerateDecoderOnlyOutput)
    assert isinstance(output, SearchOutput)
    assert torch.equal(output.sequences, sequences)
    assert torch.equal(sequences[:, : ids.shape[1]], ids)
    for row, result in zip(sequences, output.results or (), strict=True):
        canvas = row[ids.shape[1] :].tolist()
        text = TOKENIZER.decode(canvas[: canvas.index(END)] if END in canvas else canvas)
        assert text == result.text


def test_it_is_the_engines_search_and_padding_does_not_matter(model: HeldModel) -> None:
    ids, mask = padded(QUESTIONS)
    both = generate(
        model, ids, attention_mask=mask, tokenizer=TOKENIZER, task="countdown",
        return_dict_in_generate=True, **SMALL,
    )  # fmt: skip
    assert isinstance(both, SearchOutput)
    held = as_model(model, TOKENIZER, END)
    for text, result in zip(QUESTIONS, both.results or (), strict=True):
        row = TOKENIZER.encode(text)
        alone = generate(
            model, torch.tensor([row]), tokenizer=TOKENIZER, task="countdown",
            return_dict_in_generate=True, **SMALL,
        )  # fmt: skip
        assert isinstance(alone, SearchOutput)
        assert alone.results
        by_engine = s3dlm.generate(
            held, text, settings=s3dlm.Settings(**SMALL), sample_id=repr(row),
            task="countdown",
        )  # fmt: skip
        assert result.text == alone.results[0].text == by_engine.text


class Streamer:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def put(self, value: Tensor) -> None:
        self.said.append(("put", TOKENIZER.decode(value[0], skip_special_tokens=True)))

    def put_draft(self, value: Tensor) -> None:
        self.said.append(("draft", TOKENIZER.decode(value[0], skip_special_tokens=True)))

    def end(self) -> None:
        self.said.append(("end", ""))


def test_a_streamer_sees_the_prompt_a_draft_a_step_and_the_answer(model: HeldModel) -> None:
    ids, _ = padded(QUESTIONS[:1])
    streamer = Streamer()
    found = generate(model, ids, tokenizer=TOKENIZER, streamer=streamer, **SMALL)
    assert [kind for kind, _ in streamer.said] == ["put", *["draft"] * SMALL["steps"], "put", "end"]  # type: ignore[operator]
    assert streamer.said[0][1] == QUESTIONS[0]
    assert isinstance(found, Tensor)
    assert streamer.said[-2][1] == TOKENIZER.decode(found[0, ids.shape[1] :], True)


def test_the_streamer_of_transformers_works(
    model: HeldModel, capsys: pytest.CaptureFixture[str]
) -> None:
    streamers = pytest.importorskip("transformers.generation.streamers")
    if not hasattr(streamers, "TextDiffusionStreamer"):
        pytest.skip("this transformers has no streamer of drafts")
    streamer = streamers.TextDiffusionStreamer(
        TOKENIZER, skip_prompt=True, skip_special_tokens=True
    )
    ids, _ = padded(QUESTIONS[:1])
    generate(model, ids, tokenizer=TOKENIZER, streamer=streamer, **SMALL)
    assert "<answer>" in capsys.readouterr().out


def test_max_new_tokens_sets_the_canvas(model: HeldModel) -> None:
    ids, _ = padded(QUESTIONS[:1])
    found = generate(model, ids, tokenizer=TOKENIZER, max_new_tokens=48, method="baseline")
    assert isinstance(found, Tensor)
    assert found.shape == (1, ids.shape[1] + 48)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_ids_of_its_text(model: HeldModel, method: str) -> None:
    ids, _ = padded(QUESTIONS[:1])
    output = generate(
        model, ids, tokenizer=TOKENIZER, task="countdown", method=method,
        return_dict_in_generate=True, **only_used(method, SMALL),
        **({"verifier": "paper"} if method == "prism" else {}),  # this model is no judge of itself
    )  # fmt: skip
    assert isinstance(output, SearchOutput)
    assert output.results
    canvas = output.sequences[0, ids.shape[1] :].tolist()
    text = TOKENIZER.decode(canvas[: canvas.index(END)] if END in canvas else canvas)
    assert text == output.results[0].text


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"tokenizer": None}, SettingsError, "pass tokenizer="),
        ({"particels": 3}, SettingsError, "did you mean 'particles'"),
        ({"stopping_criteria": [1]}, SettingsError, "stopping_criteria is not supported"),
        ({"inputs": torch.zeros(3, dtype=torch.long)}, PromptError, r"\(prompts, tokens\)"),
    ],
)
def test_what_cannot_be_is_refused(
    model: HeldModel, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    ids, _ = padded(QUESTIONS[:1])
    with pytest.raises(error, match=said):
        generate(model, **{"inputs": ids, "tokenizer": TOKENIZER, **arguments})


def test_a_model_without_a_mask_is_no_diffusion_model(model: HeldModel) -> None:
    other = HeldModel(Config())
    other.config.mask_token_id = None
    with pytest.raises(ModelError, match="has no mask token"):
        as_model(other, TOKENIZER)
