"""Pages of `s3dlm view` carry a policy that allows their own script and style, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

import s3dlm
from s3dlm.settings import Settings
from s3dlm.viewer.page import joined, standalone, viewer_files
from tests.fakes import events_of, fake_model

META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
SETTINGS = Settings("s3", gen_length=24, steps=6, block_length=24, particles=2, branching=2)
HOSTILE = "</script><script>window.ran = true</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("view") / "trace.jsonl"
    model = fake_model()
    events = events_of(model, HOSTILE, settings=SETTINGS)
    list(s3dlm.write_trace(path, model, events, question=HOSTILE, task=None, settings=SETTINGS))
    return standalone([path])


def test_the_policy_allows_the_own_script_and_style_alone(page: str) -> None:
    """It comes before all that it governs, and a prompt cannot end the element that holds it."""
    assert HOSTILE not in page
    assert len(re.findall("<script", page)) == 2  # the recorded data and the page's own code
    (found,) = META.finditer(page)
    assert not re.search("<(script|style|link|img)", page[: found.start()])
    policy = dict(part.strip().split(" ", 1) for part in found[1].split(";"))
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    hashed = [
        base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in (script, style)
    ]
    assert policy == {
        "default-src": "'none'",
        "script-src": f"'sha256-{hashed[0]}'",
        "style-src": f"'sha256-{hashed[1]}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_every_module_is_joined_once() -> None:
    lines = joined("main.js").splitlines()
    assert not [line for line in lines if line.startswith(("import", "export"))]


def test_the_gold_answer_of_a_trace_is_put_into_words(tmp_path: Path) -> None:
    path, model = tmp_path / "trace.jsonl", fake_model()
    events = events_of(model, "x", settings=SETTINGS)
    list(s3dlm.write_trace(path, model, events, question="x", settings=SETTINGS))
    header, _, rest = path.read_text().partition("\n")
    path.write_text(json.dumps({**json.loads(header), "gold": [[11, 13, 1], 25]}) + "\n" + rest)
    assert "any expression of 11, 13 and 1 that makes 25" in standalone([path])


def test_no_text_is_smaller_than_eleven_pixels() -> None:
    style = viewer_files()["style.css"][0].decode()
    sizes = re.findall(r"font(?:-size)?: ([0-9.]+)(rem|px)", style)
    assert len(sizes) > 30
    assert min(float(size) * (16 if unit == "rem" else 1) for size, unit in sizes) >= 11
