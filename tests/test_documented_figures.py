"""README's figures are those of the pages and data they come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
from benchmarks.tuned import CHOSEN

from s3dlm.models.folder import defaults_of
from s3dlm.settings import Settings

ROOT = Path(__file__).parents[1]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_accuracy_over_forward_passes() -> None:
    """The data of the chart."""
    frame = pd.read_csv(ROOT / "docs" / "images" / "five_curves.csv")
    mean = frame[frame.scope == "mean of tasks"].set_index(["label", "point"])
    for label, point, words in (
        ("revise", 3, "`revise` gets {:.1f} % right with {:.1f} passes ({:.0f} without sharing"),
        ("plain", 3, "LLaDA's greedy loop {:.1f} % with {:.0f} ({:.0f})."),
        ("restarts", 3, "are as good**: {:.1f} % with {:.1f} ({:.0f})"),
        ("s3", 2, "({:.1f} % with {:.1f} passes, {:.0f} without sharing;"),
        ("best_of_k", 4, "the vote ends at {:.1f} %)"),
        ("s3", 3, "passes of restarts: {:.1f} % with {:.1f} ({:.0f})"),
    ):
        row = mean.loc[(label, point)]
        assert words.format(100 * row.accuracy, row.nfe, row.nfe_logical) in README


def test_grids() -> None:
    """Without a solver's step; with it they are an extra."""
    text = (ROOT / "docs" / "when_search_pays.md").read_text(encoding="utf-8")
    text = text.partition("## Without a solver")[2]
    solved = []
    for blanks in (60, 70):
        part = text.partition(f"| **{blanks} blanks**: restarts |")[2]
        restarts = int(part.split("|")[1])
        ours = int(re.search(r"by duplicates \| \d+ \| (\d+)", part)[1])  # type: ignore[index]
        solved.append((ours, restarts))
    (ours60, theirs60), (ours70, theirs70) = solved
    assert (
        f"Within 32 passes `mend`, which is `revise` for grids, solves {ours60} % of 9×9 grids with 60 blanks "
        f"and {ours70} % with 70, restarts {theirs60} % and {theirs70} %"
    ) in README


def test_searches_against_bare_passes() -> None:
    """The short page of performance says what `make bench` measured."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    figures = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    for each in figures["figures"]:
        if each["name"].startswith("s3 / bare forwards"):
            words = f"{each['median']:.2f} times as long"
            assert words in page
            assert f"({each['low']:.2f}–{each['high']:.2f}" in page


def test_tiny_recommends_what_tuning_found() -> None:
    recommended = defaults_of("tiny")
    for method, chosen in json.loads(CHOSEN.read_text(encoding="utf-8")).items():
        found = Settings.recommended(recommended, method).to_json()
        assert chosen.items() <= found.items(), method
