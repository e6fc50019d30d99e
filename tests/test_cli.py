"""The command line as a user meets it: answers, boards, wrong flags, broken pipes of all kinds."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import s3dlm
from s3dlm import board, tasks
from s3dlm.cli import main as cli
from s3dlm.extras.code.sandbox.runner import UNSAFE
from s3dlm.models import registry
from s3dlm.settings import schema
from tests.fakes import events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = ["--gen-length", "32", "--steps", "8", "--block-length", "16"]
SIZES = s3dlm.Settings("s3", gen_length=32, steps=8, block_length=16)
INFILL = "12 - 6 = [[1]]. <answer>[[12]]</answer>"
MAIN = "from s3dlm.cli.main import main; main()"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command on the fake model: exit code, output, errors."""
    monkeypatch.setattr(registry, "load", lambda name, **_: fake_model())
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["s3dlm", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return call


def test_an_answer_without_a_step_to_check_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "generate x --task gsm8k --gen-length 32 --block-length 32 --reveal threshold --verifier checker"
    for text, checkable in (("We add. \\boxed{5}", False), ("2 + 3 = 5. \\boxed{5}", True)):
        model = fake_model((text,) * 2, noise=0.0)
        monkeypatch.setattr(registry, "load", lambda name, model=model, **_: model)
        assert ("no step to check" in run(*asked.split())[2]) is not checkable
        assert json.loads(run(*asked.split(), "--json")[1])["checkable"] is checkable


def test_generate_prints_the_text_and_plain_lines_or_json_and_writes_a_trace(
    run: Run, tmp_path: Path
) -> None:
    trace, known = tmp_path / "run.jsonl", ["generate", f" {QUESTION}\n", "--method", "s3", *SMALL]
    known += ["--set", "child_sampling=distinct", "--set", "cadence=block", "--set", "budget=none"]
    code, out, err = run(*known, "--trace", str(trace))
    assert (code, bool(out.strip())) == (0, True)
    assert err.startswith("loading model tiny …")
    assert "\x1b" not in err
    assert err.count("step ") >= 8
    assert "forward passes" in err
    code, plain, err = run(*known, "--json")
    result = json.loads(plain)
    assert (code, err, result["text"]) == (0, "loading model tiny …\n", out.removesuffix("\n"))
    assert {"text", "answer", "nfe", "nfe_logical", "survivors", "settings"} <= set(result)
    chosen = [result["settings"][name] for name in ("child_sampling", "cadence", "budget")]
    assert chosen == ["distinct", "block", None]
    *_, replayed = s3dlm.read_trace(trace)
    assert isinstance(replayed, s3dlm.Result)
    assert replayed.text == result["text"]
    # A small model knows its tasks by their form.
    named = json.loads(run(*known, "--json", "--task", "countdown")[1])
    assert (result["task"], result["answer"]) == ("countdown", named["answer"])


def test_prompts_and_texts_with_holes_may_come_from_standard_input(
    run: Run, tmp_path: Path
) -> None:
    ask, trace = ["generate", "-", "--task", "none", *SMALL], tmp_path / "trace.jsonl"
    code, out, err = run(*ask, "--quiet", "--timings", stdin="why?")
    assert (code, bool(out.strip())) == (0, True)
    assert "loading" not in err
    assert all(name in err for name in ("forward", "sampling", "verifier", "search"))
    piped = run(*ask, "--json", stdin="why?\n")[1]  # as echo writes it
    assert json.loads(piped)["question"] == "why?"
    words = ["generate", QUESTION, "--infill", "-", "--trace", str(trace), *SMALL]
    _, out, err = run(*words, stdin=f"{INFILL}\n")
    assert out.startswith("12 - 6 = ")
    assert out.endswith("</answer>\n")  # the whole text
    assert "step " in err
    assert s3dlm.read_trace(trace).header["infill"] == INFILL
    result = json.loads(run(*words, "--json", stdin=INFILL)[1])
    assert (result["text"] + "\n", len(result["holes"])) == (out, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("generate x --method s33", ["did you mean 's3'"]),
        ("generate x --task countdwn", ["did you mean 'countdown'"]),
        ("generate x --particles 0", ["particles=0", "from 1 to"]),
        ("generate x --model nowhere --verifier nothing", ["verifier='nothing' is unknown"]),
        ("generate x --model nowhere --verifier no.py:f", ["no.py cannot be read"]),
        ("eval --verifier nothing --method s3 --out x", ["verifier='nothing' is unknown"]),
        ("serve --model no/model --method s4", ["method='s4' is unknown"]),
        ("serve --model no/model --alias a=s3,particels=2", ["did you mean 'particles'"]),
        ("serve --model no/model --verifier nothing", ["verifier='nothing' is unknown"]),
        ("generate x --particels 3", ["No such option", "--particles"]),
        ("generate x --set child_sampling=distinkt", ["did you mean 'distinct'"]),
        ("generate x --set steps", ["--set 'steps' is not allowed", "NAME=VALUE"]),
        ("generate x --set top_k=2 --set top_k=3", ["top_k=…", "twice"]),
        ("generate x --steps 8 --set steps=4", ["both given"]),
        ("generate x --set top_k=2,3", ["one value"]),
        ("generate x --set method=revise", ["--method chooses the method"]),
        ("eval --model tinny --dry-run --out x", ["model='tinny' is unknown"]),
        ("generate x --method s3 --method revise", ["generate takes one"]),
        ("generate x --task chain --task countdown", ["generate takes one"]),
        ("generate x --method best_of_k --lam 3", ["lam=3.0 is not a setting of method='best_of_k'"]),
        ("generate x --load dtyp=float32", ["did you mean 'dtype'"]),
        ("generate x --load trust_remote_code=maybe", ["true or false"]),
        ("generate ' ' --model nowhere", ["is empty; give a question"]),
        ("generate --infill x", ["has no hole", "[[16]]"]),
        ("generate --infill 'x [[2]]' --task countdown", ["is empty; give a question"]),
        ("eval --batch-size 0 --out x", ["--batch-size': Input should be greater than or equal to 1", "s3dlm eval -h"]),
        ("eval --task nowhere.jsonl:gsm8k --out x", ["nowhere.jsonl does not exist"]),
        ("eval --task nowhere.jsonl --out x", ["the file does not exist"]),
        ("eval --task nowhere.txt:gsm8k --out x", ["looks like a file", "FILE.jsonl"]),
        ("serve --max lenght=3", ["did you mean 'length'"]),
        ("genrate", ["No such command 'genrate'; did you mean 'generate'?"]),
        ("hello", ["No such command", "s3dlm generate QUESTION"]),
        ("eval --model llada --dry-run --out x", ["did you mean 'GSAI-ML/LLaDA-8B-Instruct'"]),
        ("list foo", ["'foo' is not one of"]),
        ("generate x --particles two", ["--particles': give a whole number"]),
        ("eval --particles 8 --out x", ["here it is `--set particles=VALUE`"]),
        ("score nowhere.jsonl --task gsm8k", ["nowhere.jsonl cannot be read"]),
        ("score nowhere.jsonl --task gsm9k", ["task='gsm9k'", "did you mean 'gsm8k'"]),
        ("score nowhere.jsonl --task gsm8k --grading d7", ["grading='d7'"]),
        ("eval --set particles=two --out x", ["particles='two'", "give a whole number"]),
        ("report nowhere", ["give a folder that `s3dlm eval` wrote"]),
        ("report a b", ["give --out"]),
        ("reproduce --size week", ["size='week' is unknown"]),
        ("reproduce --set lam=1,2", ["give one value"]),
        (
            f"generate {QUESTION!r} --trace no/such/folder --gen-length 8 --steps 8 --block-length 8",
            ["s3dlm: no/such/folder cannot be written: No such file or directory; give another path"],
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(run: Run, arguments: str, words: list[str]) -> None:
    code, _, err = run(*shlex.split(arguments))
    assert code == 2
    (line,) = [one for one in err.splitlines() if not one.startswith("loading model")]
    assert line.startswith("s3dlm: ")
    assert all(word in line for word in words), err


def test_a_list_in_a_narrow_terminal_has_every_word_of_the_wide_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    wide = re.findall(r"\w+", run("list", "models")[1].partition("\n")[2])
    monkeypatch.setenv("COLUMNS", "40")
    lines = run("list", "models")[1].splitlines()
    assert re.findall(r"\w+", "\n".join(lines)) == wide
    assert all(len(line) <= 40 for line in lines if line.startswith(" "))


def test_no_question_and_one_that_no_task_has_are_answered_with_some_that_can_be_asked(
    run: Run,
) -> None:
    code, out, err = run("generate", "hello")
    assert (code, out, err.count("\n  s3dlm generate ")) == (2, "", 5)
    assert "'hello'" in err
    assert "--task none" in err
    *_, last = run("generate", "." * 81)
    assert last.endswith("--model sudoku9 knows it\n")
    code, out, err = run("generate")
    assert (code, out) == (2, "")
    assert err.startswith("s3dlm: ask a question, for example:\n  s3dlm generate '")
    assert "--task gsm8k --model some/model" in run("generate", "--model", "some/model")[2]
    puzzles = run("generate", "1234", "--model", "sudoku9")[2].splitlines()[2:-1]
    assert puzzles
    assert all(line.endswith(" --model sudoku9") for line in puzzles)


@pytest.mark.parametrize(
    ("question", "task"),
    [
        ("Eva has 5 boxes of 6 pens. She loses 8. How many pens does she have in the end?", "arithmetic"),
        ("Ann has 3 apples and buys 4 more. How many has she?", None),
        ("Tom has 500 coins. He loses 3. How many coins does Tom have now?", None),
    ],
)  # fmt: skip
def test_a_story_is_recognised_as_far_as_tiny_knows_it(question: str, task: str | None) -> None:
    assert tasks.of_question(None, question, ["arithmetic"]) == task


def test_messages_in_a_terminal_break_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli._tell("a message of some words\n  s3dlm generate 'a long question'")
    told = capsys.readouterr().err.splitlines()
    assert told == ["a message of some", "words", "  s3dlm generate 'a long question'"]


def test_what_is_here_is_listed(run: Run) -> None:
    assert set(json.loads(run("list", "methods", "--json")[1])) == set(s3dlm.settings.METHODS)
    names = {"methods": [*s3dlm.settings.METHODS], "models": ["tiny"], "tasks": ["countdown"]}
    for what, some in {**names, "verifiers": ["checker"]}.items():
        for more in ([], ["--json"]):
            code, out, _ = run("list", what, *more)
            assert code == 0
            assert all(name in out for name in some)


def test_control_c_ends_cleanly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "load", stop)
    assert run("generate", QUESTION) == (130, "", "loading model tiny …\nstopped\n")


def test_help_and_version(run: Run) -> None:
    """Every command has a whole sentence, and `generate` an option for each shown setting."""
    commands = run("-h")[1].partition("Commands:")[2].strip().splitlines()
    assert commands
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)
    out = run("generate", "-h")[1]
    assert "[[16]]" in out
    shown = {name for name, rules in schema().items() if rules["shown"]}
    assert all(f"--{name.replace('_', '-')}" in out for name in shown)
    assert run("--version")[1] == f"s3dlm {s3dlm.__version__}\n"


@pytest.mark.parametrize("recorded", [False, True])
def test_the_board_shows_a_search_or_a_trace_and_passes_on_every_event_and_error(
    recorded: bool, tmp_path: Path
) -> None:
    """Particles and blocks on a terminal; a trace needs no model."""
    model, out, path = fake_model(), io.StringIO(), tmp_path / "run.jsonl"
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    events = list(events_of(model, QUESTION, task="countdown", settings=SIZES))
    told: Any = (board.pieces_of(model), model.end_ids)
    if recorded:
        list(s3dlm.write_trace(path, model, events, question=QUESTION))
        events = list(trace := s3dlm.read_trace(path))
        told = (trace.pieces.get, frozenset())

    def broken() -> Iterator[s3dlm.Step | s3dlm.Result]:
        yield from events[:2]
        raise s3dlm.S3dlmError("broken off")

    shown = board.draw_search(events, *told, console=console, pace=1e4)
    assert all(a is b for a, b in zip(shown, events, strict=True))
    assert all(words in out.getvalue() for words in (board.BLOCK, "step 8 of 8", "ESS"))
    with pytest.raises(s3dlm.S3dlmError, match="broken off"):
        list(board.draw_search(broken(), *told, console=console, pace=1e4))


@pytest.mark.parametrize("width", [40, 80])
def test_the_board_shows_what_a_round_re_masks_and_ends_with_a_full_bar(width: int) -> None:
    """Every picture fits the terminal, and the last one is whole."""
    model, pictures = fake_model(), list[str]()
    settings = s3dlm.Settings("revise", rounds=2, gen_length=32, steps=8, block_length=16)
    drawn = board.Board(board.pieces_of(model), model.end_ids, "revise", None, width)
    for event in events_of(model, QUESTION, task="countdown", settings=settings):
        for picture in drawn.pictures(event):
            console = Console(file=io.StringIO(), width=width, legacy_windows=False)
            with console.capture() as captured:
                console.print(picture)
            pictures.append(captured.get())
    lines = [line for picture in pictures for line in picture.splitlines()]
    assert all(len(line) == width for line in lines)
    assert any("round 2 takes back what is red" in " ".join(one.split()) for one in pictures)
    assert any(board.AGAIN in one.partition("━")[0] for one in pictures)
    assert "━" * (width - 4) in pictures[-1]
    assert "done" in pictures[-1]


def test_what_a_round_takes_back_stays_longer_and_a_long_search_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fake_model()
    settings = s3dlm.Settings("revise", rounds=1, gen_length=32, steps=8, block_length=16)
    *steps, result = events_of(model, QUESTION, task="countdown", settings=settings)

    def shown_for() -> float:
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        console = Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False)
        events = [*steps, result]
        list(board.draw_search(events, board.pieces_of(model), console=console, pace=1.0))
        return now[0]

    assert shown_for() == len(steps) + board.REMASKED
    monkeypatch.setattr(board, "PACED", 3)
    assert shown_for() == 3


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys; sys.argv = ['s3dlm', '--help']; {MAIN}"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    assert "generate" in done.stdout
    imported = {line.rsplit("|")[-1].strip() for line in done.stderr.splitlines()}
    heavy = {"torch", "transformers", "matplotlib", "fastapi", "ray", "pydantic", "s3dlm.engine"}
    assert not imported & heavy


@pytest.mark.parametrize("command", ["generate '?'", "report no-such-folder"])
def test_missing_protections_are_accepted_on_the_command_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The sandbox is told before any command does anything, whatever becomes of the command."""
    monkeypatch.setenv(UNSAFE, "")
    run(*shlex.split(command))
    assert not os.environ[UNSAFE]
    run("--unsafe-code", *shlex.split(command))
    assert os.environ[UNSAFE] == "1"


@pytest.mark.filterwarnings("always")
def test_a_warning_is_one_line_and_said_once(run: Run) -> None:
    cli._tell_once.cache_clear()
    _, _, err = run("generate", QUESTION, "--temperature", "0", *SMALL)
    assert err.count("temperature=0") == 1
    assert "\ns3dlm: warning: temperature=0 with method='revise'" in err
