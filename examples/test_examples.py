"""Every example runs as it stands and says what it promises."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from tools import notebook

FOLDER = Path(__file__).parent
SAYS = {
    "own_verifier.py": r"chosen: \(10-1\)\+6",
    "own_method.py": r"answer: \(10-1\)\+6",
    "own_task.py": r"2 of 2 right",
    "own_model.py": r"s3 +1\.00 ",
    "s3_in_one_page.py": r"8 \* 7 = 56\. Then 56 - 11 = 45\.",
    "score_outputs.py": r"total +weight 1\.00 +AUC 1\.00",
    "sweep_and_plot.py": r"12 records; .*sweep\.svg",
    "serve_and_call.py": r"\S",
    "code_search.py": r"(?s)baseline +failed.*s3 +passed +return max\(numbers\) - min\(numbers\)",
}
# These run in tests/test_documented_answers.py, where their answers are graded for other seeds as well.
ANSWERED = {"own_verifier.py", "own_method.py", "own_model.py", "own_task.py", "code_search.py"}
ARGUMENTS = {"sweep_and_plot.py": ["2"]}


def test_every_example_is_tested() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {*SAYS, "conftest.py", "test_examples.py"}


def test_the_algorithm_fits_on_a_page() -> None:
    lines = (FOLDER / "s3_in_one_page.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 60


@pytest.mark.parametrize("name", sorted(SAYS.keys() - ANSWERED))
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(matplotlib|uvicorn|websockets|pyparsing)")
def test_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(name, monkeypatch, capsys)


def run_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert re.search(SAYS[name], capsys.readouterr().out)


def test_the_notebook_shows_what_its_cells_do() -> None:
    """What is stored is what is printed now; results tell their time, so of them only the vote is compared."""
    book = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for number, cell in enumerate(cells, 1):
        shown = notebook.outputs_of("".join(cell["source"]), names, number)
        for stored, now in zip(cell["outputs"], shown, strict=True):
            assert stored["output_type"] == now["output_type"]
            assert stored.get("text") == now.get("text"), "run: python -m tools.notebook"
    greedy, result = cells[0]["outputs"]
    assert greedy["text"] == ["greedy: 83\n"]
    assert "93" in "".join(result["data"]["text/html"])
    drawn = "".join(cells[2]["outputs"][0]["data"]["text/html"])
    assert all(
        part in drawn for part in ("<circle", "<line", "score 0.5 or less", "does not survive")
    )
