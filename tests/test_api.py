"""What a researcher meets in Python: short representations, and errors as good as the command line's."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from functools import partial

import pytest

import s3dlm
from examples import own_method
from examples.own_method import Beam
from s3dlm.errors import S3dlmError, SettingsError, VerifierError
from s3dlm.settings import schema
from tests.fakes import events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 32, "steps": 8, "block_length": 32, "temperature": 1.0}


def test_half_a_character_may_stand_in_a_sample_id() -> None:
    assert s3dlm.generate(fake_model(), "q", sample_id="\ud800", **SMALL)


def test_a_verifier_by_name_is_a_setting() -> None:
    ask = partial(s3dlm.generate, fake_model(), QUESTION, task="countdown", verifier="checker")
    result, again = ask(**SMALL), ask(settings=s3dlm.Settings(**SMALL))
    assert again.settings.verifier == result.settings.verifier == "checker"
    assert again.text == result.text


def test_representations_are_short_and_say_what_matters() -> None:
    *steps, result = events_of(fake_model(), QUESTION, task="countdown", **SMALL)
    for one in (steps[0], result, fake_model(), s3dlm.Settings(particles=8)):
        assert len(repr(one).splitlines()) <= 2
        assert len(repr(one)) < 300
    assert re.search(r"Step\(1 of 8: 4 children, 4 survivors, ESS \d", repr(steps[0]))
    assert f"{result.nfe} passes" in repr(result)
    assert repr(s3dlm.Settings("s3", particles=8, seed=1)) == "Settings('s3', particles=8, seed=1)"


def test_notebooks_get_html_without_the_models_markup() -> None:
    model = fake_model(["<script>alert(1)</script> <answer>6 * 4</answer>"], push=30.0)
    result = s3dlm.generate(model, QUESTION, task="countdown", **SMALL)
    for html in (result._repr_html_(), model._repr_html_()):
        assert "<script>" not in html
    assert "&lt;" in result._repr_html_()


def test_a_registered_method_is_known_everywhere() -> None:
    s3dlm.register_method(Beam)
    assert "beam" in schema()["method"]["enum"]  # the server's form and schema
    settings = s3dlm.Settings("beam", **SMALL)
    assert s3dlm.Settings.from_json(settings.to_json()) == settings
    named, given = (
        s3dlm.generate(fake_model(), QUESTION, task="countdown", method=method, **SMALL)
        for method in ("beam", Beam())
    )
    assert named.text == given.text
    with pytest.raises(SettingsError, match="'beam' exists"):
        s3dlm.register_method(Beam)


def test_a_file_can_hold_a_method() -> None:
    file, name = own_method.__file__, Beam.__name__
    command = [sys.executable, "-c", "from s3dlm.cli.main import main; main()", "generate"]
    words = ["Target: 15 Numbers: 10, 1, 6", "--method", f"{file}:{name}", "--json"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"]
    with pytest.raises(SettingsError, match=r"name=.Nobody. is unknown; choose one of: Beam"):
        s3dlm.Settings(f"{file}:Nobody")


def test_a_search_is_iterated_for_its_steps_and_then_has_a_result() -> None:
    search, other = (
        s3dlm.stream(fake_model(), QUESTION, task="countdown", **SMALL) for _ in range(2)
    )
    assert {type(step) for step in search} == {s3dlm.Step}
    assert search.result is search.result
    whole = other.result  # no step was asked for
    assert whole.text == search.result.text
    data = search.result.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["answer"], len(data["survivors"])) == (whole.answer, len(whole.survivors))


def test_a_search_can_be_awaited_step_by_step() -> None:
    async def count() -> tuple[int, str]:
        search = s3dlm.stream(fake_model(), QUESTION, task="countdown", **SMALL)
        seen = [step async for step in search]
        return len(seen), search.result.text

    plain = s3dlm.stream(fake_model(), QUESTION, task="countdown", **SMALL)
    assert asyncio.run(count()) == (len(list(plain)), plain.result.text)


def test_a_broken_search_has_no_result() -> None:
    def bad(prompt: str, text: str, confidence: float | None) -> float:
        raise RuntimeError("no")

    search = s3dlm.stream(fake_model(), QUESTION, task="countdown", verifier=bad, **SMALL)
    with pytest.raises(VerifierError):
        list(search)
    with pytest.raises(S3dlmError, match="broken off"):
        _ = search.result
