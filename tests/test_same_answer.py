"""One prompt, five ways in, one answer: the model's own settings apply wherever a prompt comes from.

The fifth way, the viewer's form, is in tests/server/test_viewer.py, where the browser is.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import s3dlm
from s3dlm.cli import main as cli
from s3dlm.errors import SettingsError
from s3dlm.models import registry
from tests.fakes import fake_model
from tests.server.live import Live, serving

pytest.importorskip("lm_eval")

QUESTION, TASK, METHOD = "Target: 15 Numbers: 10, 1, 6", "countdown", "revise"


@pytest.fixture(scope="module")
def model() -> s3dlm.Model:
    return s3dlm.load("tiny")


@pytest.fixture(scope="module")
def server(model: s3dlm.Model) -> Iterator[Live]:
    with serving(model, defaults={}) as live:
        yield live


def test_one_prompt_has_one_answer_at_every_door(
    model: s3dlm.Model, server: Live, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    own: dict[str, Any] = {"task": TASK, "method": METHOD}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the harness and its packages warn about themselves
        from s3dlm.extras.lm_eval.model import S3dlmLM
    said = {"by name": s3dlm.generate("tiny", QUESTION, **own).text}
    monkeypatch.setattr(registry, "load", lambda name, **_: model)
    words = ["s3dlm", "generate", QUESTION, "--task", TASK, "--method", METHOD, "--json"]
    monkeypatch.setattr("sys.argv", words)
    cli.main()
    said["shell"] = json.loads(capsys.readouterr().out)["text"]
    messages = [{"role": "user", "content": QUESTION}]
    reply = server.chat(model="tiny", messages=messages, **own)
    said["HTTP"] = reply.choices[0].message.content
    lm = S3dlmLM(model, method=METHOD)
    asked = SimpleNamespace(
        args=(lm.apply_chat_template(messages), {"until": []}), task_name=f"s3dlm_{TASK}",
        doc={"question": QUESTION},
    )  # fmt: skip
    (said["lm-eval"],) = lm.generate_until([asked], disable_tqdm=True)
    expected = s3dlm.generate(model, QUESTION, **own).text
    assert said == dict.fromkeys(said, expected)


def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What the command says when it refuses."""
    monkeypatch.setattr("sys.argv", ["s3dlm", "generate", *words])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().err


@pytest.mark.parametrize(("task", "found"), [(None, "countdown"), ("none", None)])
def test_a_question_of_a_known_form_needs_no_task(
    model: s3dlm.Model, server: Live, task: str | None, found: str | None
) -> None:
    told = server.post("/v1/settings", prompt=QUESTION, task=task).json()
    python = s3dlm.generate(model, QUESTION, task=task, method="baseline")
    assert (told["task"], python.task) == (found, found)


DOORS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": [QUESTION, "hello"]},
    "/v1/search": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 64},
}


def test_a_question_that_a_small_model_does_not_know_is_refused_at_every_door(
    server: Live, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "tiny knows 5 kinds of question, and 'hello' is not one of them"
    assert why in " ".join(shell(capsys, monkeypatch, "hello").split())
    assert server.http.post("/v1/settings", json={"prompt": "hello"}).json()["known"] is False
    for path, own in DOORS.items():
        body = {"model": "tiny", "method": "baseline", **own}
        told = server.post(path, **body)
        words = told.json()["error"]["message"]
        assert (told.status_code, words[: len(why)]) == (400, why), path
        assert "give the task 'none'" in words
        assert server.post(path, **body, task="none").status_code == 200, path


def test_what_a_tokenizer_lacks_is_missed_at_every_door(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = fake_model()
    monkeypatch.setattr(bare.tokenizer, "has_chat_template", False)
    with pytest.raises(SettingsError, match="has no chat template") as told:
        s3dlm.generate(bare, QUESTION, verifier="self")
    with serving(bare, defaults={}) as live:
        answer = live.ask(QUESTION, verifier="self")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, str(told.value))
    monkeypatch.setattr(registry, "load", lambda name, **_: bare)
    assert str(told.value) in shell(capsys, monkeypatch, QUESTION, "--verifier", "self")
