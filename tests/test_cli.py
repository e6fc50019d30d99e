"""The command line as a user meets it: answers, boards, wrong flags, broken pipes of all kinds."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command

import s3dlm
from s3dlm import board
from s3dlm.cli import main as cli
from s3dlm.models import registry
from s3dlm.sandbox import configure, shared
from s3dlm.sandbox.runner import UNSAFE
from s3dlm.settings import schema
from tests.fakes import fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = ["--gen-length", "32", "--steps", "8", "--block-length", "16"]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda name, **_: fake_model())


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["s3dlm", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_generate_prints_the_text_and_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "generate", QUESTION, "--task", "countdown", *SMALL) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    assert "\x1b" not in err
    assert err.count("step ") >= 8
    assert "NFE" in err


def test_generate_as_json_with_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "run.jsonl"
    words = ["--task", "countdown", "--json", "--trace", str(trace), *SMALL]
    assert run(monkeypatch, "generate", QUESTION, *words) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"text", "answer", "nfe", "nfe_logical", "survivors", "settings"} <= set(result)
    replayed = list(s3dlm.read_trace(trace))
    assert isinstance(replayed[-1], s3dlm.Result)
    assert replayed[-1].text == result["text"]


def test_any_setting_can_be_given_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--set", "child_sampling=distinct", "--set", "cadence=block", "--rounds", "1"]
    extra += ["--set", "budget=none"]
    assert run(monkeypatch, "generate", QUESTION, "--json", *extra, *SMALL) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    found = (settings["child_sampling"], settings["cadence"], settings["rounds"])
    assert found == ("distinct", "block", 1)


def test_the_prompt_may_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("why?"))
    assert run(monkeypatch, "generate", "-", "--quiet", "--timings", *SMALL) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    for activity in ("forward", "sampling", "verifier", "search"):
        assert activity in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", ""], ["is empty"]),
        (["generate", "x", "--method", "s33"], ["did you mean 's3'"]),
        (["generate", "x", "--task", "countdwn"], ["did you mean 'countdown'"]),
        (["generate", "x", "--particles", "0"], ["particles=0", "from 1 to"]),
        (["generate", "x", "--steps", "1000"], ["steps=1000"]),
        (["generate", "x", "--verifier", "nowhere.toml"], ["nowhere.toml"]),
        (["generate", "x", "--particels", "3"], ["No such option", "--particles"]),
        (["generate", "x", "--set", "child_sampling=distinkt"], ["did you mean 'distinct'"]),
        (["generate", "x", "--set", "steps"], ["--set 'steps' is not allowed", "NAME=VALUE"]),
        (["generate", "x", "--set", "top_k=2", "--set", "top_k=3"], ["top_k=…", "twice"]),
        (["generate", "x", "--steps", "8", "--set", "steps=4"], ["both given"]),
        (["generate", "x", "--set", "top_k=2,3"], ["one value"]),
        (["generate", "x", "--method", "s3", "--method", "best"], ["generate takes one"]),
        (["generate", "x", "--load", "dtyp=float32"], ["did you mean 'dtype'"]),
        (["generate", "x", "--load", "compile=maybe"], ["true or false"]),
        (["eval", "--set", "steps=4,8", "--out", "x"], ["steps cannot be swept"]),
        (["serve", "--max", "lenght=3"], ["did you mean 'length'"]),
        (["generate", "x", "--method", "best_of_k", "--lam", "3"], ["lam=3.0 changes nothing"]),
        (["generate", "x", "--task", "nowhere.jsonl:gsm8k"], ["nowhere.jsonl does not exist"]),
        (["eval", "--task", "nowhere.jsonl:gsm8k", "--out", "x"], ["nowhere.jsonl does not exist"]),
        (["eval", "--task", "nowhere.jsonl", "--out", "x"], ["the file does not exist"]),
        (
            ["eval", "--task", "nowhere.csv:gsm8k", "--out", "x"],
            ["looks like a file", "FILE.jsonl"],
        ),
        (["generate", " ", "--model", "nowhere"], ["is empty; give a question"]),
        (["generate", "--infill", "x"], ["has no hole", "[[16]]"]),
        (["generate", "--infill", "x [[2", "--model", "nowhere"], ["no closing ]]"]),
        (["generate", "--infill", "x [[2]]", "--task", "countdown"], ["is empty; give a question"]),
        (["genrate"], ["No such command"]),
        (["score", "nowhere.jsonl", "--task", "gsm8k"], ["nowhere.jsonl"]),
    ],
)
def test_a_mistake_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: list[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_what_is_here_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list", "methods", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)) == set(s3dlm.settings.METHODS)
    assert run(monkeypatch, "list", "methods") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in s3dlm.settings.METHODS)
    for what, name in (("models", "tiny"), ("tasks", "countdown"), ("verifiers", "plus")):
        for more in ([], ["--json"]):
            assert run(monkeypatch, "list", what, *more) == 0
            assert name in capsys.readouterr().out


def test_control_c_ends_cleanly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "load", stop)
    assert run(monkeypatch, "generate", "x") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_the_board_on_a_terminal_shows_particles_and_blocks() -> None:
    model, out = fake_model(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    events = s3dlm.stream(
        model,
        QUESTION,
        task="countdown",
        settings=s3dlm.Settings(gen_length=32, steps=8, block_length=16),
    )
    seen = list(board.show(events, board.pieces_of(model), model.end_ids, console=console))
    text = out.getvalue()
    assert isinstance(seen[-1], s3dlm.Result)
    assert board.HIDDEN in text
    assert "step 8/8" in text
    assert "ESS" in text


def test_a_trace_plays_on_the_board_without_a_model(tmp_path: Path) -> None:
    model, path, out = fake_model(), tmp_path / "run.jsonl", io.StringIO()
    settings = s3dlm.Settings(gen_length=32, steps=8, block_length=16)
    list(
        s3dlm.write_trace(
            path, model, s3dlm.stream(model, "why?", settings=settings), question="why?"
        )
    )
    trace = s3dlm.read_trace(path)
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    list(board.show(trace, board.pieces_of_trace(trace), console=console))
    assert "step 8/8" in out.getvalue()


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['s3dlm', '--help']; from s3dlm.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    assert "generate" in done.stdout
    imported = {line.rsplit("|")[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "transformers", "matplotlib", "fastapi", "ray", "s3dlm.engine"}


def test_the_version_is_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"s3dlm {s3dlm.__version__}\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("s3dlm gen", "generate"),
        ("s3dlm generate --method look", "look_ahead"),
        ("s3dlm generate --task count", "countdown"),
        ("s3dlm serve --method best_", "best_of_k"),
        ("s3dlm eval --method greedy,s3_", "greedy,s3_paper"),
        ("s3dlm eval --task chain,count", "chain,countdown"),
    ],
)
def test_the_shell_completes_commands_and_names(words: str, offered: str) -> None:
    code = "import sys; sys.argv = ['s3dlm']; from s3dlm.cli.main import main; main()"
    asked = {"_S3DLM_COMPLETE": "complete_bash", "COMP_WORDS": words}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked, "COMP_CWORD": str(len(words.split()) - 1)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert offered in done.stdout.split(), done.stderr


def test_loading_a_model_is_announced_unless_only_the_answer_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "generate", "why?", "--json", *SMALL) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["text"]
    assert err.startswith("loading model tiny …")
    assert run(monkeypatch, "generate", "why?", "--quiet", *SMALL) == 0
    assert "loading" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "?", *SMALL),
        ("eval", "--out", "x", "--task", "no-such-task"),
        ("reproduce", "--task", "no-such-task"),
        ("report", "no-such-folder"),
        ("serve", "--host", "0.0.0.0"),  # refused: it has no key
    ],
)
def test_missing_protections_are_accepted_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """The sandbox is told before the command does anything, whatever becomes of the command."""
    before = shared()
    monkeypatch.setenv(UNSAFE, "")
    try:
        configure()
        run(monkeypatch, *arguments)
        assert not shared().allow_unprotected
        run(monkeypatch, "--unsafe-code", *arguments)
        assert shared().allow_unprotected
    finally:
        configure(before.limits, before.allow_unprotected)


INFILL = "12 - 6 = [[1]]. <answer>[[12]]</answer>"


def test_infill_prints_the_whole_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    more = [QUESTION, "--infill", INFILL, "--task", "countdown", *SMALL]
    assert run(monkeypatch, "generate", *more, "--trace", str(trace)) == 0
    out, err = capsys.readouterr()
    assert out.startswith("12 - 6 = ")
    assert "</answer>" in out
    assert "step " in err
    assert s3dlm.read_trace(trace).header["infill"] == INFILL
    assert run(monkeypatch, "generate", *more, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["text"] + "\n" == out
    assert len(result["holes"]) == 2


def test_infill_reads_standard_input_and_needs_no_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab[[3]]cd\n"))
    assert run(monkeypatch, "generate", "--infill", "-", "--quiet", "--timings", *SMALL) == 0
    out, err = capsys.readouterr()
    assert out.startswith("ab")
    assert out.endswith("cd\n")
    assert not out.endswith("\n\n")
    assert "verifier" in err


def test_the_help_of_generate_fits_on_two_screens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, "generate", "-h") == 0
    out = capsys.readouterr().out
    assert "[[16]]" in out
    assert len(out.splitlines()) <= 48
    shown = {name for name, rules in schema().items() if rules["shown"]}
    assert all(f"--{name.replace('_', '-')}" in out for name in shown)


def test_the_command_line_stays_small() -> None:
    commands = get_command(cli.app).commands  # type: ignore[attr-defined]
    options = [p for c in commands.values() for p in c.params if p.param_type_name == "option"]
    assert len(commands) <= 11
    assert len(options) <= 100


def test_a_path_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "trace.jsonl"
    assert run(monkeypatch, "generate", QUESTION, "--trace", str(path), *SMALL) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"s3dlm: {path}: No such file or directory; give another path"


@pytest.mark.filterwarnings("always")
def test_a_warning_is_one_line_and_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli._say_once.cache_clear()
    assert run(monkeypatch, "generate", QUESTION, "--temperature", "0", *SMALL) == 0
    err = capsys.readouterr().err
    assert err.count("temperature=0") == 1
    assert err.startswith("s3dlm: warning: temperature=0 with method='s3'")
