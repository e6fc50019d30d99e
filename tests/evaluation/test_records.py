"""Records outlive a kill: whatever is left of the last line, nothing is lost or counted twice."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from s3dlm.errors import RecordError
from s3dlm.evaluation import records
from s3dlm.evaluation.records import (
    RECORDS,
    Failure,
    Record,
    RecordedSurvivor,
    Store,
    read,
    read_all,
    write_atomic,
)

RUN = "abcdef012345"


def record(sample: str = "a", seed: int = 0, **changes: object) -> Record:
    candidate = RecordedSurvivor("sí\u2028ça", "4", None, 0.5, 0.9, 0.0, 3)
    base = Record(
        spec="0123456789ab", sample=sample, seed=seed, correct=1.0, answer="4",
        text="2 + 2 = 4\n", survivors=(candidate, candidate), nfe=10, nfe_logical=20,
        tokens=5, answer_tokens=1, ess=None, curve=(0.5, 0.75),
        scores=((50, 60), (70, 80)), at=2.5,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def write(folder: Path, *rows: Record | Failure) -> bytes:
    with Store(folder) as store:
        for row in rows:
            store.append(row, RUN)
    return (folder / RECORDS).read_bytes()


def test_a_row_comes_back_as_it_went(tmp_path: Path) -> None:
    rows = [record(sample, seed) for sample in "ab" for seed in (0, 1)]
    write(tmp_path, *rows)
    assert read(tmp_path) == rows


def test_every_torn_last_line_is_repaired(tmp_path: Path) -> None:
    """Also by a line that is shorter than what was left."""
    short = record("c", survivors=(), curve=(), scores=())
    repaired = write(tmp_path / "whole", record("a"), short)
    whole = write(tmp_path, record("a"), record("b"))
    first = whole.index(b"\n") + 1
    for cut in (*range(first, len(whole), 7), len(whole) - 1):
        (tmp_path / RECORDS).write_bytes(whole[:cut])
        assert read(tmp_path) == [record("a")]  # reading changes nothing
        with Store(tmp_path) as store:
            assert set(store.contents.records) == {record("a").key}
            store.append(short, RUN)
        assert (tmp_path / RECORDS).read_bytes() == repaired


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """A damaged line is refused; damage to the last line feed makes that line an incomplete one."""
    whole = write(tmp_path, record("a"), record("b"))
    path, (first, second) = tmp_path / RECORDS, whole.splitlines(keepends=True)
    path.write_bytes(first[:20] + b"\n" + second)
    with pytest.raises(RecordError, match=r"line 1, cannot be read.*damaged"):
        Store(tmp_path)
    for bit in range(0, 8 * (len(whole) - 1), 67):  # each place in a byte, in all kinds of bytes
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(RecordError, match=r"damaged|version"):
            read(tmp_path)
    path.write_bytes(whole[:-1] + b"\x0b")
    assert read(tmp_path) == [record("a")]


def test_a_failure_is_kept_until_the_sample_succeeds(tmp_path: Path) -> None:
    failed = Failure("0123456789ab", "a", 0, "PromptError", "the prompt is too long")
    write(tmp_path, failed, dataclasses.replace(failed, reason="again"), record("b"))
    found = read_all(tmp_path)
    assert [one.reason for one in found.failures.values()] == ["again"]
    assert read(tmp_path) == [record("b")]
    with pytest.raises(RecordError, match="already recorded"):
        write(tmp_path, record("a"), failed)
    assert not read_all(tmp_path).failures
    assert read(tmp_path) == [record("b"), record("a")]


def test_a_full_disk_is_one_line_and_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a part of the line."""
    real = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at > start + 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:60], at)

    with Store(tmp_path) as store:
        store.append(record("a"), RUN)
        start = (tmp_path / RECORDS).stat().st_size
        with monkeypatch.context() as patch:
            patch.setattr(records.os, "pwrite", full)
            with pytest.raises(
                RecordError, match="cannot be written: No space left on device; give"
            ):
                store.append(record("b"), RUN)
    assert (tmp_path / RECORDS).read_bytes().endswith(b"\n")
    assert read(tmp_path) == [record("a")]


def test_a_read_only_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(records.os, "open", refuse)
        with pytest.raises(RecordError, match="cannot be written: Read-only file system"):
            Store(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written: File exists"):
        write_atomic(tmp_path / "file" / "report.md", "text")


def test_nothing_counts_twice(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="already recorded"):
        write(tmp_path, record("a"), record("a"))
    data = (tmp_path / RECORDS).read_bytes()
    (tmp_path / RECORDS).write_bytes(data + data)
    with pytest.raises(RecordError, match="already recorded"):
        Store(tmp_path)


def test_two_writers_and_a_folder_without_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a folder that `s3dlm eval` wrote"):
        read(tmp_path)
    with Store(tmp_path), pytest.raises(RecordError, match="another run"):
        Store(tmp_path)
    Store(tmp_path).close()
