"""What is run by hand follows the package: every tool and every study starts, and runs at its smallest size."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import run as bench
from benchmarks.measure import Figure

from tools import tables

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder in ("tools", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.stem.startswith(("test_", "conftest"))
]
COMMANDS = [path for path in FILES if 'if __name__ == "__main__":' in path.read_text()]
# Their arguments at the smallest size; what writes into the repository or needs data that are no part of it is left out.
SMALLEST = {
    "benchmarks.agreed": "1",
    "benchmarks.behaviour": "exact look_aheads genealogy sizes resamplers clock late oracle "
    "--task countdown --limit 1 --out out --images .",
    "benchmarks.code_verifier": "--problems 1",
    "benchmarks.effort": "1",
    "benchmarks.fast": "1",
    "benchmarks.frontier": "out --limit 1 --seeds 1 --task countdown,chain --entries revise,restarts,s3",
    "benchmarks.memory": "s3",
    "benchmarks.quantize": "1",
    "benchmarks.reveal": "1",
    "benchmarks.stopping": "1",
    "benchmarks.structure": "--schemas 1 --problems 1",
    "benchmarks.sudoku9": "test out --limit 1 --kinds unique --rows untuned;mend",
    "benchmarks.tune": "--limit 1 --task countdown --method s3 --temperature 1 --lam 1 --out out",
    "benchmarks.tuned": "--limit 1 --task countdown --method s3 --out out",
    "benchmarks.uniform_noise": "--limit 1 --validation 1",
    "benchmarks.verifier_speed": "--rounds 1",
    "tools.count": "--json",
    "tools.diffusion_gemma_plan": "",
    "tools.full_size": "--layers 1 --folder .",
    "tools.sizing": "",
    "tools.sudoku9": "puzzles --blanks 48 --count 1",
}


def named(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


@pytest.mark.parametrize("path", [path for path in FILES if path not in COMMANDS], ids=named)
def test_tools_and_benchmarks_follow_the_package(path: Path) -> None:
    importlib.import_module(named(path))


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_every_command_says_what_it_does_and_takes(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does nothing else when it is only asked."""
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert end.value.code in (0, None)
    assert said.startswith("usage: ")
    assert len(said.split()) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_every_command_runs_at_its_smallest_size(name: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", name, *SMALLEST[name].split()]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_tables_that_a_program_wrote_again_take_the_names_that_are_free(tmp_path: Path) -> None:
    """Those of other tables, which are on the page as links, stay as they are."""
    table = "\n".join(["| a | b |", "|---|---|", *(f"| {n} | x |" for n in range(5))])
    page, other = tmp_path / "page.md", "[page-one-2.csv](page-one-2.csv): kept\n"
    page.write_text(f"# Page\n## One\n{table}\n## One\n{other}## One\n{table}\n")
    assert tables.move(page) == 2
    assert re.findall(r"\(([\w.-]+)\)", page.read_text()) == [
        "page-one.csv", "page-one-2.csv", "page-one-3.csv",
    ]  # fmt: skip
    assert (tmp_path / "page-one-3.csv").read_text().splitlines()[:2] == ["a,b", "0,x"]
    assert not (tmp_path / "page-one-2.csv").exists()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "TABLE", tmp_path / "table.csv")
    return tmp_path


def test_bench_writes_the_table_that_the_page_links(results: Path) -> None:
    """Figures that were not measured this time stay."""
    bench.write(
        [Figure("a, b", "≤ 1.0", 2.0, 1.0, 3.0, 4, False), Figure("c", "", 1, 1, 1, 1, None)]
    )
    bench.write([Figure("c", "≥ 3", 4, 4, 4, 1, True)])
    with (results / "table.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert rows == [["a, b", "2.00", "1.00–3.00 (4)", "≤ 1.0", "no"],
                    ["c", "4.00", "4.00–4.00 (1)", "≥ 3", "yes"]]  # fmt: skip
    page = ROOT / "docs" / "appendix" / "performance-all-measurements.csv"
    assert page.read_text(encoding="utf-8").splitlines()[0].split(",") == head
    assert f"]({page.name})" in page.with_name("performance.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_bench_measures_each_part(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--repeats", "1"])
    bench.main()
    known = json.loads((ROOT / "benchmarks" / "results.json").read_text())["figures"]
    found = json.loads((results / "results.json").read_text())["figures"]
    assert {each["name"] for each in found} == {each["name"] for each in known}
