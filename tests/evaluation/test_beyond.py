"""The comparison of everything beyond the paper: each variant runs, and the page says what it cost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from s3dlm.evaluation import beyond, summary
from s3dlm.evaluation.run import evaluate
from s3dlm.search.methods import METHODS
from tests.evaluation.small_run import BASE, small_model, small_plan, write_task

CHOSEN = ("best_of_k", "best_of_k, K = 64", "s3", "FK, max", "best")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("beyond")
    task = write_task(folder)
    conditions = beyond.conditions([task], BASE, {}, CHOSEN, rivals=4)
    plan = dataclasses.replace(small_plan(task), conditions=conditions, remember=0.1)
    evaluate(small_model(), plan, folder / "run", max_rows=64)
    return task, folder / "run"


def test_every_method_is_among_the_variants() -> None:
    compared = {str(own["method"]) for own in beyond.VARIANTS.values()}
    assert set(METHODS) - compared == {"look_ahead", "tilting"}  # the paper's ablation has those
    assert set(beyond.RIVALS) <= set(beyond.VARIANTS)


def test_a_tuned_setting_stands_under_the_variants_own() -> None:
    tuned = {"s3": {"temperature": 2.0, "lam": 30.0}}
    (one,) = beyond.conditions(["countdown"], BASE, tuned, ["s3"])
    assert (one.settings.temperature, one.settings.lam) == (2.0, 1.0)


def test_rivals_are_asked_fewer_problems_and_our_own_all(run: tuple[str, Path]) -> None:
    _, folder = run
    (grid,) = beyond.tables(summary.read(folder))
    asked = {row[0]: row[1] for row in grid.rows}
    assert asked["FK, max"] == "4 × 1"
    assert asked["best"] == "12 × 2"


def test_a_variant_is_compared_with_the_smallest_best_of_k_that_spends_as_much() -> None:
    nfe = {"best_of_k": 30.0, "best_of_k, K = 64": 90.0, "s3": 20.0, "best": 60.0, "hex": 100.0}
    assert beyond._matched("s3", nfe) == "best_of_k"
    assert beyond._matched("best", nfe) == "best_of_k, K = 64"
    assert beyond._matched("hex", nfe) is None
    assert beyond._matched("best_of_k", nfe) is None


def test_the_page_names_its_command_and_has_every_row(
    run: tuple[str, Path], tmp_path: Path
) -> None:
    _, folder = run
    beyond.write(folder, tmp_path / "beyond.md", ["ablate", "--out", "runs/beyond"])
    page = (tmp_path / "beyond.md").read_text()
    assert "s3dlm ablate --out runs/beyond" in page
    assert all(f"| {name} |" in page for name in CHOSEN)
