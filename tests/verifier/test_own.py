"""A verifier of one's own: a file on the command line, a function in Python."""

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import s3dlm
from s3dlm.cli.main import app
from s3dlm.errors import RecordError, SettingsError
from s3dlm.verifier import as_verifier, own
from tests.fakes import fake_model

LENGTH = "def length(prompt, text, confidence):\n    return min(1.0, len(text) / 100)\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        LENGTH
        + "from s3dlm.verifier import Verifier\n"
        + "class Judge(Verifier):\n    def score(self, *row):\n        return 1\nNUMBER = 3\n"
    )
    return path


def test_a_file_gets_a_name_with_a_hash_of_its_content(file):
    assert as_verifier(own.from_file(f"{file}:Judge")).score("q", "x") == 1  # a class is built
    name = own.from_file(f"{file}:length")
    assert name.startswith("mine.py:length@")
    assert as_verifier(name, "gsm8k").score("q", "x" * 50).total == 0.5
    assert own.from_file(f"{file}:length") == name
    file.write_text(LENGTH.replace("100", "200"))
    changed = own.from_file(f"{file}:length")
    assert changed != name
    assert as_verifier(changed).score("q", "x" * 50).total == 0.25
    assert as_verifier(name).score("q", "x" * 50).total == 0.5


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (LENGTH, "lenght", "did you mean 'length'"),
        ("NUMBER = 3", "NUMBER", "not a verifier"),
        ("import nothing_of_the_kind", "f", "raises ModuleNotFoundError.*when it is imported"),
        ("def f(:", "f", "raises SyntaxError"),
        ("raise SystemExit(0)", "f", "raises SystemExit"),
        ("class Judge:\n    def __init__(self, x): ...", "Judge", "built without arguments"),
        ("def f(text): return 1", "f", r"must take \(question, text, confidence\)"),
    ],
)
def test_what_cannot_be_a_verifier_is_refused(tmp_path, source, name, message):
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(SettingsError, match=message):
        own.from_file(f"{path}:{name}")


def test_only_the_user_may_name_a_file(file):
    with pytest.raises(SettingsError, match="only the command line"):
        as_verifier(f"{file}:length", "gsm8k")
    with pytest.raises(SettingsError, match="only the command line"):
        s3dlm.generate(s3dlm.load("tiny"), "x", method="s3", verifier=f"{file}:length")


def test_a_worker_takes_the_files_of_its_parent(file):
    name = own.from_file(f"{file}:length")
    code = (
        "import sys\nfrom s3dlm.verifier import as_verifier, own\n"
        "own.take([sys.argv[1]])\nprint(as_verifier(sys.argv[2]).score('q', 'x' * 50).total)"
    )
    (spelling,) = [each for each in own.given() if each == f"{file}:length"]
    run = subprocess.run(
        [sys.executable, "-c", code, spelling, name], capture_output=True, text=True, check=True
    )
    assert run.stdout == "0.5\n"


def test_a_run_records_its_verifier_and_notices_that_it_has_changed(tmp_path):
    def judge(prompt, text, confidence):
        return min(1.0, len(text) / 100)

    def other(prompt, text, confidence):
        return 0.5

    how = {"out": tmp_path / "run", "limit": 2, "particles": 2, "branching": 1, "steps": 8}
    found = s3dlm.evaluate("tiny", "countdown", "s3", verifier=judge, **how)
    assert found["countdown"]["s3"].problems == 2
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["conditions"][0]["settings"]["verifier"] == own.from_object(judge)
    s3dlm.evaluate("tiny", "countdown", "s3", verifier=judge, **how)  # resumes
    other.__name__ = "judge"
    with pytest.raises(RecordError, match=r"verifier was 'judge@.*is now 'judge@"):
        s3dlm.evaluate("tiny", "countdown", "s3", verifier=other, **how)


COMMANDS = {
    "generate": "generate x --task none --method s3 -N 1 -b 2 --gen-length 8 --steps 2 --block-length 8 --verifier FILE --json",
    "generate --set": "generate x --task none --gen-length 8 --steps 2 --block-length 8 --set verifier=FILE --json",
    "eval": "eval --task countdown --method s3 --verifier FILE --out OUT --dry-run",
    "eval --set": "eval --task countdown --method s3 --set verifier=FILE --out OUT --dry-run",
    "reproduce": "reproduce --task countdown --set verifier=FILE --out OUT --dry-run",
    "score": "score TEXTS --task gsm8k --verifier FILE --json",
    "serve": "serve --verifier FILE",
    "serve --alias": "serve --alias mine=s3,verifier=FILE",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_takes_a_verifier_takes_a_file(command, file, tmp_path, monkeypatch):
    """It is loaded and used; only what comes after (the model, the sockets) is a stand-in."""
    from s3dlm.models import registry

    monkeypatch.setattr(registry, "load", lambda name, **_: fake_model())
    asked = dict[str, Any]()
    if command.startswith("serve"):
        from s3dlm.server import app as server
        from s3dlm.server import limits, run

        monkeypatch.setattr(server, "create_app", lambda model, **how: asked.update(how))
        monkeypatch.setattr(limits, "bind_socket", lambda host, port: None)
        monkeypatch.setattr(run, "serve_until_signal", lambda *_, **__: None)
    outputs = [{"question": f"q{n}", "output": f"#### {n % 2}", "gold": 1} for n in range(40)]
    (tmp_path / "outputs.jsonl").write_text("\n".join(map(json.dumps, outputs)))
    places = {"FILE": f"{file}:length", "OUT": str(tmp_path / "out"),
              "TEXTS": str(tmp_path / "outputs.jsonl")}  # fmt: skip
    words = COMMANDS[command].split()
    for word, place in places.items():
        words = [each.replace(word, place) for each in words]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, (found.output, found.exception)
    known_as = own.from_file(f"{file}:length")
    if command.startswith("generate"):
        assert json.loads(found.stdout)["settings"]["verifier"] == known_as
    elif command == "score":
        assert json.loads(found.stdout)["verifier"] == known_as
    elif command == "serve":
        assert asked["verifiers"] == {"mine.py:length": known_as}
    elif command == "serve --alias":
        assert asked["aliases"]["mine"]["verifier"] == known_as
