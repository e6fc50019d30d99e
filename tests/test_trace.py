from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.cli import main
from s3dlm.errors import RecordError
from s3dlm.settings import Settings
from tests.fakes import events_of, fake_model

SETTINGS = Settings("s3", gen_length=32, steps=8, block_length=16)
Recorded = tuple[Path, list[s3dlm.Step | s3dlm.Result]]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    model, path = fake_model(), tmp_path / "run.jsonl"
    events = events_of(model, "Target: 24 Numbers: 6, 4, 12", task="countdown", settings=SETTINGS)
    seen = list(
        s3dlm.write_trace(path, model, events, question="q", task="countdown", settings=SETTINGS)
    )
    return path, seen


def test_a_trace_replays_what_was_seen(recorded: Recorded) -> None:
    path, seen = recorded
    trace = s3dlm.read_trace(path)
    assert trace.header["version"] == 2
    *steps, result = trace
    *steps_seen, result_seen = seen
    assert len(steps) == len(steps_seen) == SETTINGS.decoding.steps
    for step, original in zip(steps, steps_seen, strict=True):
        assert np.array_equal(step.tokens, np.where(original.tokens == 256, -1, original.tokens))
        for name in ("score", "weight", "ess", "survivor", "parent"):
            np.testing.assert_allclose(getattr(step, name), getattr(original, name), atol=1e-5)
        probable = np.exp(original.clean_logp)
        np.testing.assert_allclose(np.exp(step.clean_logp), probable, atol=0.0051)
        assert [set(parts) for parts in step.parts] == [set(parts) for parts in original.parts]
    for name in ("text", "answer", "nfe", "settings"):
        assert getattr(result, name) == getattr(result_seen, name)
    assert all(isinstance(one, s3dlm.Survivor) for one in result.survivors)
    last = steps[-1]
    ids = [token for token in last.tokens[last.survivor[0]].tolist() if token < 256]
    assert "".join(trace.pieces[token] for token in ids) == result_seen.survivors[0].text


def test_every_line_is_plain_json(recorded: Recorded) -> None:
    lines = recorded[0].read_text().splitlines()
    kinds = [json.loads(line, parse_constant=pytest.fail).get("event", "header") for line in lines]
    assert kinds == ["header"] + ["step"] * SETTINGS.decoding.steps + ["result"]


def test_a_torn_last_line_is_dropped_and_other_damage_is_named(recorded: Recorded) -> None:
    path, _ = recorded
    text = path.read_text()
    path.write_text(text[:-30])
    assert len(list(s3dlm.read_trace(path))) == SETTINGS.decoding.steps
    path.write_text(text.replace('"event":"step"', '"event":"ste', 1))
    with pytest.raises(RecordError, match="line 2, cannot be read"):
        s3dlm.read_trace(path)
    with pytest.raises(RecordError, match="cannot be read"):
        s3dlm.read_trace(path.with_name("nowhere"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.pop("parent"),
        lambda row: row.update(parent=["x"]),
        lambda row: row.update(parent=[1]),
        lambda row: row.update(tokens=[[1], [1, 2]]),
        lambda row: row.update(score=None),
        lambda row: row.update(pieces=[]),
        lambda row: row.update(event="unknown"),
        lambda row: row.update(clean=[[10**400]]),
    ],
)
def test_a_damaged_step_is_named_by_its_line(recorded, damage) -> None:  # type: ignore[no-untyped-def]
    path, _ = recorded
    lines = path.read_text().split("\n")
    row = json.loads(lines[2])
    damage(row)
    lines[2] = json.dumps(row)
    path.write_text("\n".join(lines))
    with pytest.raises(RecordError, match="line 3 is not a step or result"):
        s3dlm.read_trace(path)


@pytest.mark.parametrize(
    "text", ["", '{"format": "other"}\n', "[]\n", "3\n", "[" * 100_000 + "\n{}\n", "\x00\n"]
)
def test_a_file_that_is_not_a_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(RecordError, match=r"t\.jsonl"):
        s3dlm.read_trace(tmp_path / "t.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_full_disk_is_one_line() -> None:
    model = fake_model()
    events = s3dlm.stream(model, "x", gen_length=8, steps=2, block_length=8).events
    with pytest.raises(RecordError, match="/dev/full cannot be written: No space left on device"):
        list(s3dlm.write_trace("/dev/full", model, events, question="x"))


@pytest.mark.parametrize("path", ["/dev/full", "nowhere/page.html"])
def test_a_page_that_cannot_be_written_is_one_line(
    path: str, recorded: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["s3dlm", "view", str(recorded[0]), "--out", path])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"s3dlm: {path} cannot be written: ")
    assert said.count("\n") == 1
