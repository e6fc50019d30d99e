"""The demonstration on the fake model: bounded, complete, and saying what its records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.evaluation import comparisons, demo, frames, records
from s3dlm.models import registry
from tests.evaluation.small_run import small_model


@pytest.mark.usefixtures("undrawn")
def test_it_ends_with_a_report_that_begins_with_the_same_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "load", lambda name, **_: small_model())
    monkeypatch.setenv("COLUMNS", "80")
    words = ["demo", "--limit", "3", "--workers", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    said = done.stdout
    assert all(method in said for method in demo.COMPARED)
    assert "3 problems per task" in said
    (path,) = re.findall(r"report: (\S+)", said)
    run = frames.read(tmp_path)
    sentences = comparisons.sentences(run, demo.REFERENCE)
    wide = {line for line in said.splitlines() if len(line) > 80 and str(tmp_path) not in line}
    assert wide <= set(sentences)  # tables fit; prose is folded by a terminal alone
    sentence = sentences[0]
    assert " ".join(sentence.split()) in " ".join(said.split())
    shown = Path(path).read_text()
    assert shown.index(sentence.replace("<", "&lt;")) < shown.index("<main>")
    assert len(records.read(tmp_path)) == 3 * len(demo.COMPARED)
    (tmp_path / "mine.txt").write_text("keep")
    demo.clear(tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left == {"mine.txt", "report.md", "report.html"}
