"""Every example runs as it stands and says what it promises."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.integrations.stand_in import provide

FOLDER = Path(__file__).parents[1] / "examples"
SAYS = {
    "own_verifier.py": r"chosen: \(10-1\)\+6",
    "own_method.py": r"answer: \(10-1\)\+6",
    "own_task.py": r"2 of 2 right",
    "own_model.py": r"s3 +1\.00 ",
    "score_outputs.py": r"total +weight 1\.00 +AUC 1\.00",
    "sweep_and_plot.py": r"12 records; .*sweep\.svg",
    "serve_and_call.py": r"\S",
    "code_search.py": r"(?s)baseline +failed.*s3 +passed +return max\(numbers\) - min\(numbers\)",
}
ARGUMENTS = {"sweep_and_plot.py": ["2"]}


def test_every_example_is_tested() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(matplotlib|uvicorn|websockets|pyparsing)")
def test_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provide(monkeypatch)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert re.search(SAYS[name], capsys.readouterr().out)
