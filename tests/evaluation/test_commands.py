"""The commands as a user types them, on the fake model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from s3dlm.cli.main import app as command_line
from s3dlm.errors import RecordError
from s3dlm.evaluation import records
from s3dlm.models import registry
from tests.evaluation.small_run import FAKE, small_model, write_task


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, undrawn: None) -> typer.Typer:
    monkeypatch.setattr(registry, "load", lambda name, **_: small_model())
    monkeypatch.setattr(registry, "KNOWN", [*registry.KNOWN, "fake"])
    monkeypatch.setattr("s3dlm.models.folder.defaults_of", lambda name: FAKE)
    return command_line


def call(app: typer.Typer, *words: str) -> str:
    done = CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


EVAL = ("eval", "--model", "fake")


def test_eval_writes_a_report_and_says_where(app: typer.Typer, tmp_path: Path) -> None:
    task, out = write_task(tmp_path, 3), tmp_path / "run"
    words = (*EVAL, "--task", task, "--method", "best_of_k,s3", "--limit", "2", "--out", str(out))
    assert str(out / "report.html") in call(app, *words).replace("\n", "")
    assert len(records.read(out)) == 4
    said = call(app, "report", str(out), "--json")
    titles = [table["title"] for table in json.loads(said)["tables"]]
    assert titles[1] == "Accuracy on every task (the paper's Tables 1 and 2)"
    assert len(records.read(out)) == 4
    with pytest.raises(RecordError, match=r"temperature was 1\.0 and is now 0\.5"):
        call(app, *words, "--set", "temperature=0.5")


def test_repeated_tasks_and_methods_join(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    tasks = [write_task(tmp_path, 2), write_task(tmp_path / "second", 1)]
    words = ["--task", tasks[0], "--task", tasks[1], "--method", "greedy", "--method", "best_of_k"]
    call(app, *EVAL, *words, "--out", str(tmp_path / "run"))
    assert len(records.read(tmp_path / "run")) == (2 + 1) * 2


def test_a_sweep_keeps_the_recommended_point_as_the_main_one(
    app: typer.Typer, tmp_path: Path
) -> None:
    words = ["--task", write_task(tmp_path, 2), "--method", "s3", "--limit", "1"]
    words += ["--set", "particles=1,2", "--set", "branching=1,2", "--out", str(tmp_path / "r")]
    call(app, *EVAL, *words)
    made = json.loads(call(app, "report", str(tmp_path / "r"), "--json"))
    sweep = next(table for table in made["tables"] if "particles" in table["title"])
    assert [row[1:3] for row in sweep["rows"]] == [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]]
