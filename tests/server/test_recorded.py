"""The records of a run as the server offers them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s3dlm.server.reporting import ApiError
from s3dlm.server.service import Recorded

HEADER = {"task": "countdown", "settings": {"method": "baseline"}, "question": "x"}


def write(folder: Path, name: str, text: str) -> None:
    (folder / "traces").mkdir(exist_ok=True)
    (folder / "traces" / f"{name}.jsonl").write_text(text)


def test_without_a_manifest_records_go_by_problem_under_their_methods(tmp_path: Path) -> None:
    for name in ("bb-countdown-0001", "aa-countdown-0002"):
        write(tmp_path, name, json.dumps(HEADER) + "\n{}\n")
    rows = Recorded((tmp_path,)).listing()
    assert [row["sample"] for row in rows] == ["countdown-0001", "countdown-0002"]
    assert {row["label"] for row in rows} == {"baseline"}
    trace = Recorded((tmp_path,)).trace(rows[0]["id"])
    assert [json.loads(line) for line in trace.splitlines()] == [HEADER, {}]


def test_a_record_has_the_label_of_its_condition_and_its_gold_in_words(tmp_path: Path) -> None:
    conditions = [{"spec": "aa", "task": "countdown", "label": "greedy"}]
    (tmp_path / "manifest.json").write_text(json.dumps({"conditions": conditions}))
    write(tmp_path, "aa-countdown-0001", json.dumps({**HEADER, "gold": 18.0}) + "\n")
    trace = Recorded((tmp_path,)).trace(f"{tmp_path.name}/aa-countdown-0001")
    assert json.loads(trace) == {**HEADER, "gold": 18.0, "gold_text": "18", "label": "greedy"}


def test_a_damaged_record_is_neither_listed_nor_sent(tmp_path: Path) -> None:
    write(tmp_path, "aa-countdown-0001", "no json\n")
    write(tmp_path, "aa-countdown-0002", "[]\n")
    recorded = Recorded((tmp_path,))
    assert recorded.listing() == []
    for name in ("aa-countdown-0001", "aa-countdown-0002", "none"):
        with pytest.raises(ApiError, match="no such trace"):
            recorded.trace(f"{tmp_path.name}/{name}")
