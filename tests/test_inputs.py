"""The one reader of JSON lines and the one loader of entry points."""

from __future__ import annotations

import gzip
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from s3dlm.errors import RecordError, SettingsError
from s3dlm.inputs import find_entry_points, load_entry_point, read_json_lines


def test_lines_are_numbered_and_blank_ones_are_skipped(tmp_path: Path) -> None:
    text = '{"a": "1\u2028"}\n\n  \n{"a": 2}'.encode()  # only a line feed ends a line
    plain, packed = tmp_path / "file.jsonl", tmp_path / "file.jsonl.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    for path in (plain, packed):
        assert list(read_json_lines(path)) == [(1, {"a": "1\u2028"}), (4, {"a": 2})]
        assert list(read_json_lines(path, drop_partial=True)) == [(1, {"a": "1\u2028"})]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("file", b'{}\n{"a":', "file, line 2, cannot be read: Expecting value.*; mend it"),
        ("file", b"[" * 100_000, "line 1, cannot be read: maximum recursion"),
        ("file", b'{"a": "\xff"}', "line 1, cannot be read: it is not UTF-8 text; mend it"),
        ("file", b"[1]", "line 1, is a JSON list, not an object; mend it"),
        ("file", b'{"a": "' + b"x" * 200 + b'"}', "line 1, has more than 100 bytes; mend it"),
        ("file.gz", b"plain", "file.gz cannot be read: Not a gzipped file.*; mend it"),
        (
            "file.gz",
            gzip.compress(b"{}\n" * 99, mtime=0)[:-9],
            "file.gz cannot be read: .*; mend it",
        ),
        ("none", None, "none cannot be read: No such file or directory; mend it"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    longest = 100 if b"xxx" in (content or b"") else 1 << 20
    with pytest.raises(RecordError, match=words):
        list(read_json_lines(tmp_path / name, remedy="mend it", longest=longest))


def test_installed_parts_are_listed_by_name_and_loaded_with_care(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [("z", "nothing:here"), ("mine", "math:pi"), ("mine", "math:e"), ("a", "nothing:here")]
    installed = [EntryPoint(name, value, "s3dlm.parts") for name, value in values]
    monkeypatch.setattr("s3dlm.inputs.entry_points", lambda group: installed)
    entries = find_entry_points("s3dlm.parts")
    assert list(entries) == ["a", "mine", "z"]  # of two the first; and nothing is loaded
    assert load_entry_point(entries["mine"], float) == pytest.approx(3.14159, abs=1e-5)
    with pytest.raises(SettingsError, match=r"'mine' \(math:pi\) .* is a float; .* builtins\.str"):
        load_entry_point(entries["mine"], str)
    with pytest.raises(SettingsError, match=r"'a' \(nothing:here\) .*ModuleNotFound.*uninstall"):
        load_entry_point(entries["a"], object)
