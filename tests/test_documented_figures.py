"""README's figures are those of the pages and data they come from, and the pages keep to their length."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.tuned import CHOSEN

from s3dlm.models.defaults import defaults_of
from s3dlm.models.families import FAMILIES
from s3dlm.settings import Settings

ROOT = Path(__file__).parents[1]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def cells(page: str, *words: str) -> list[str]:
    """The cells of the only table row of a page that begins with these words."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    (row,) = [row for row in rows if row[: len(words)] == [*words]]
    return row


def test_accuracy_over_forward_passes() -> None:
    """The data of the chart."""
    frame = pd.read_csv(ROOT / "docs" / "images" / "frontier.csv")
    mean = frame[frame.scope == "mean of tasks"].set_index("label")
    ours, loop = mean.loc["revise"].iloc[3], mean.loc["plain"].iloc[3]
    for point, words in (
        (ours, r"`revise` gets ([\d.]+) % of four tasks right with ([\d.]+) forward passes"),
        (loop, r"LLaDA's greedy loop ([\d.]+) % with ([\d.]+)\. "),
    ):
        ((accuracy, nfe),) = re.findall(words, README)
        assert float(accuracy) == pytest.approx(100 * point.accuracy, abs=0.051)  # rounded
        assert float(nfe) == pytest.approx(point.nfe, abs=0.051)


def test_grids() -> None:
    text = (ROOT / "docs" / "when_search_pays.md").read_text(encoding="utf-8")
    solved = []
    for blanks in (60, 70):
        part = text.partition(f"| **{blanks} blanks**: restarts |")[2]
        restarts = int(part.split("|")[1])
        ours = int(re.search(r"\| `mend` \| \d+ \| \*\*(\d+),", part)[1])  # type: ignore[index]
        solved.append((ours, restarts))
    (ours60, theirs60), (ours70, theirs70) = solved
    assert (
        f"Within 32 passes `mend`, which is `revise` for grids, solves {ours60} % of 9×9 grids with 60 blanks "
        f"and {ours70} % with 70, restarts {theirs60} % and {theirs70} %"
    ) in README


def test_the_papers_method() -> None:
    row = {m: cells("appendix/results_summary.md", m) for m in ("s3", "best_of_k")}
    verified = cells("appendix/results_summary.md", "verified_best_of_k")
    nfe = {name: each[-1] for name, each in row.items()}
    spent = f"at {nfe['s3']} and {nfe['best_of_k']} passes made of 257 without sharing"
    assert f"({row['s3'][6]} % against {row['best_of_k'][6]} % {spent}" in README
    assert f"verified best-of-K ({verified[6]} % at {verified[-1]})" in README


def test_tiny_recommends_what_tuning_found() -> None:
    recommended = defaults_of("tiny")
    for method, chosen in json.loads(CHOSEN.read_text(encoding="utf-8")).items():
        found = Settings.recommended(recommended, method).to_json()
        assert chosen.items() <= found.items(), method


def test_counts() -> None:
    assert len(FAMILIES) == 13
    assert "Thirteen model families" in README
