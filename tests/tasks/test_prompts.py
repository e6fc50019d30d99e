"""Prompts of one's own: read from TOML, used by every door, named in reports with the spread over several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import s3dlm
from s3dlm.cli.main import app
from s3dlm.errors import SettingsError
from s3dlm.job import Job, prepare
from s3dlm.settings import Settings
from s3dlm.tasks.prompts import read
from tools import d1_prompts

PLAIN = '[countdown]\nuser = "{question}"\n'
WORDED = '[countdown]\nuser = "Please: {question}"\nprefill = "So "\nsystem = "Be brief."\n'


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no table"),
        ("[countdown]\nuser = 'no place'", "0 {question} in user"),
        ("[countdown]\nuser = '{question}{question}'", "2 {question} in user"),
        ("[countdown]\nprefill = 'x'", "user"),
        ("[countdown]\nuser = '{question}'\nfewshot = 3", "fewshot"),
        ("[countdown]\nuser = '{question}'\nprefill = 3", "no text"),
        ("[countdown", "cannot be used"),
    ],
)
def test_a_file_that_is_no_set_of_prompts_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match="a table per task") as caught:
        read(written(tmp_path, "p.toml", text))
    assert words in str(caught.value)


def test_the_model_is_asked_in_these_words(tmp_path: Path) -> None:
    model = s3dlm.load("tiny", prompts=written(tmp_path, "p.toml", WORDED), progress=False)
    settings = Settings.for_model(model, "greedy", "countdown")
    process = prepare(model, Job("Target: 3 Numbers: 1, 2", "countdown", settings)).process
    text = model.tokenizer.decode(process.prompt.tolist())
    assert "Please: Target: 3" in text
    assert "Be brief." in text
    with pytest.raises(SettingsError, match=r"p\.toml.*choose one of: countdown"):
        prepare(model, Job("How many?", "arithmetic", settings))
    spaced = written(tmp_path, "p.toml", WORDED + "\n\n")
    assert read(spaced).name == model.defaults.wording  # blank lines change nothing
    other = written(tmp_path, "p.toml", WORDED.replace("Please", "Do"))
    assert read(other).name != model.defaults.wording


def test_d1s_prompts_are_read_from_a_checkout_and_nothing_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "eval"
    folder.mkdir()
    code = 'import nothing_of_this_name\nGSM_SYSTEM_PROMPT = """Say \\\\boxed{}."""\nraise SystemExit\n'
    written(folder, "gsm8k.py", code)
    written(folder, "parsers.py", "SYSTEM_PROMPT = 'no task'\n")
    made = read(written(tmp_path, "d1.toml", d1_prompts.prompts(tmp_path)))
    prompt = made.render("gsm8k", "1 + 1?")
    assert (prompt.user, prompt.prefill) == ("Say \\boxed{}.\n\n1 + 1?", "<reasoning>")
    assert list(made.templates) == ["gsm8k"]
    with pytest.raises(SettingsError, match="give the folder of a checkout"):
        d1_prompts.prompts(folder)


def test_an_evaluation_reports_the_spread_over_prompts(tmp_path: Path) -> None:
    files = [written(tmp_path, n, t) for n, t in (("a.toml", PLAIN), ("b.toml", WORDED))]
    words = ["eval", "--task", "countdown", "--method", "greedy", "--limit", "2", "--json"]
    words += ["--out", str(tmp_path / "run"), "--workers", "1", "--prompts", ",".join(files)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout.splitlines()[-1])
    (table,) = [table for table in made["tables"] if table["columns"][-1] == "Spread"]
    assert [column.split()[0] for column in table["columns"][1:3]] == ["a.toml", "b.toml"]
    assert table["rows"][0][0] == "greedy"
    manifest = json.loads((tmp_path / "run" / "a" / "manifest.json").read_text())
    assert manifest["prompt_style"] == read(files[0]).name
