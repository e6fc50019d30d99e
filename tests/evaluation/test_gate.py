"""The gate before hours: it passes what is right, and notices another text, another prompt and another network."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks.peers import Loop
from typer.testing import CliRunner

import s3dlm
from s3dlm.cli.main import app
from s3dlm.evaluation import gate
from s3dlm.settings import Settings
from s3dlm.tasks import Sample
from tests.models.checkpoints import edit_json

QUESTIONS = ["What is 2 + 3?", "What is 4 + 5?"]


@pytest.fixture(scope="module")
def recorded(checkpoint: Path) -> Path:
    """What LLaDA's own loop answers, end tokens included, as d1 records it."""
    model, rows = s3dlm.load(str(checkpoint), device="cpu", progress=False), []
    for question in QUESTIONS:
        settings = Settings.for_model(model, "greedy", "gsm8k", **gate.GREEDY)
        torch.manual_seed(0)
        output = model.tokenizer.decode(
            Loop(model, question, settings, "gsm8k").decode()[0].tolist()
        )
        rows.append({"task": "gsm8k", "gen_length": 128, "question": question, "output": output})
    path = checkpoint.parent / "recorded.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_model_that_is_right_passes(checkpoint: Path, recorded: Path, tmp_path: Path) -> None:
    data = [{"question": q, "answer": "#### 5"} for q in QUESTIONS] * 660
    (tmp_path / "gsm8k_test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in data[:1319]))
    words = ["reproduce", "--check", "--model", str(checkpoint), "--device", "cpu", "--limit", "2"]
    words += ["--data", str(tmp_path), "--recorded", str(recorded), "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    found = {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}
    assert found["logits"]["verdict"] == "not checked"  # it is on the CPU itself
    assert found["greedy texts"]["verdict"] == "pass"
    assert "2 of 2 texts equal" in found["greedy texts"]["found"]
    assert "69.29%" in found["greedy texts"]["found"]
    assert all(size in found["speed"]["found"] for size in ("hour", "day", "full"))
    assert found["prompts"]["verdict"] == "pass"
    assert found["prompts"]["found"].count("What is 2 + 3?") == 1  # prompts and ids are shown
    assert "as transformers has them: " in found["prompts"]["found"]
    model, texts = s3dlm.load(str(checkpoint), device="cpu", progress=False), list[str]()
    d1 = tmp_path / "gsm8k_0_generations.json"
    for line in recorded.read_text().splitlines():
        texts.append(json.loads(line)["output"])
    rows = [{"question": q, "generations": t} for q, t in zip(QUESTIONS, texts, strict=True)]
    d1.write_text(json.dumps({"generations": rows, "gen_length": 128}))
    samples = [Sample(q, q, 5.0) for q in QUESTIONS]
    assert gate._texts(model, samples, texts, d1)[0] == "pass"
    words[words.index("--recorded") + 1] = str(edited(recorded, tmp_path / "other.jsonl"))
    assert CliRunner().invoke(app, words).exit_code == 1


def edited(recorded: Path, other: Path) -> Path:
    """The same questions with other outputs."""
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    other.write_text("".join(json.dumps({**row, "output": "no"}) + "\n" for row in rows))
    return other


def test_another_chat_template_is_noticed(checkpoint: Path, tmp_path: Path) -> None:
    model = s3dlm.load(str(checkpoint), device="cpu", progress=False)
    jobs = [gate._job(model, Sample("0", QUESTIONS[0], 5.0))]
    assert gate._prompts(model, jobs)[0] == "pass"
    bundled = s3dlm.load("tiny", device="cpu", progress=False)
    assert gate._prompts(bundled, [gate._job(bundled, Sample("0", QUESTIONS[0], 5.0))])[0] == "pass"
    other = shutil.copytree(checkpoint, tmp_path / "other")
    told = json.loads((other / "tokenizer_config.json").read_text())["chat_template"]
    edit_json(other / "tokenizer_config.json", chat_template=told.replace("user", "User", 1) + "!")
    verdict, words = gate._prompts(replace(model, name=str(other)), jobs)
    assert verdict == "differs"
    assert "by transformers, other from number" in words


def _again(model: s3dlm.Model, **_: str) -> s3dlm.Model:
    return model


def test_another_text_and_another_network_are_noticed(
    checkpoint: Path, recorded: Path, tmp_path: Path
) -> None:
    other = edited(recorded, tmp_path / "other.jsonl")
    model = s3dlm.load(str(checkpoint), device="cpu", dtype="bfloat16", progress=False)
    broken = s3dlm.load(str(checkpoint), device="cpu", progress=False)
    for _, tensor in broken.denoiser.tensors():
        tensor.mul_(-1.5)
    samples = [Sample(str(n), question, 5.0) for n, question in enumerate(QUESTIONS)]
    plain = s3dlm.load(str(checkpoint), device="cpu", progress=False)
    verdicts = []
    for network, path in ((plain, None), (broken, other)):
        found = gate.checks(model, partial(_again, network), samples, path)
        verdicts.append({line.name: line.verdict for line in found})
    assert [found["logits"] for found in verdicts] == ["pass", "differs"]
    assert [found["greedy texts"] for found in verdicts] == ["not checked", "differs"]
    lost = replace(model, name="no/such/model")
    assert gate._guarded("prompts", lambda: gate._prompts(lost, [])).verdict == "not checked"
