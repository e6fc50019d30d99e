"""Records outlive a kill: whatever is left of the last line, nothing is lost or counted twice."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from s3dlm.errors import RecordError
from s3dlm.evaluation.records import FILE, Candidate, Record, Store, canonical, read


def record(sample: str = "a", seed: int = 0, **changes: object) -> Record:
    candidate = Candidate("sí\u2028ça", "4", None, 0.5, 0.9, 0.0, 3)
    base = Record(
        spec="0123456789ab",
        sample=sample,
        seed=seed,
        correct=1.0,
        answer="4",
        text="2 + 2 = 4\n",
        survivors=(candidate, candidate),
        nfe=10,
        nfe_logical=20,
        steps=2,
        tokens=5,
        answer_tokens=1,
        confidence=0.9,
        ess=None,
        curve=(0.5, 0.75),
        scores=((50, 60), (70, 80)),
        seconds=1.5,
        at=2.5,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_row_comes_back_as_it_went(tmp_path: Path) -> None:
    rows = [record(sample, seed) for sample in "ab" for seed in (0, 1)]
    with Store(tmp_path) as store:
        for row in rows:
            store.append(row)
    assert read(tmp_path) == rows


def test_every_torn_last_line_is_repaired(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
        store.append(record("b"))
    whole = (tmp_path / FILE).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        (tmp_path / FILE).write_bytes(whole[:cut])
        assert read(tmp_path) == [record("a")]  # reading changes nothing
        with Store(tmp_path) as store:
            assert store.keys == {record("a").key}
            store.append(record("b"))
        assert (tmp_path / FILE).read_bytes() == whole


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
        store.append(record("b"))
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(lines[0][:20] + b"\n" + lines[1])
    with pytest.raises(RecordError, match="line 1, is not a record"):
        Store(tmp_path)
    row = json.loads(lines[0]) | {"v": 99}
    (tmp_path / FILE).write_text(json.dumps(row) + "\n")
    with pytest.raises(RecordError, match="line 1: record version 99"):
        read(tmp_path)


def test_nothing_counts_twice(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
        with pytest.raises(RecordError, match="already recorded"):
            store.append(record("a"))
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data + data)
    with pytest.raises(RecordError, match="already recorded"):
        Store(tmp_path)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(RecordError, match="another run"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_clocks_do_not_count_as_records() -> None:
    one, two = record("a"), record("b")
    later = record("a", seconds=9.0, at=10.0)
    assert canonical([one, two]) == canonical([two, later])
    assert canonical([one]) != canonical([record("a", nfe=11)])


def test_a_folder_without_records_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a folder that `s3dlm eval` wrote"):
        read(tmp_path)
