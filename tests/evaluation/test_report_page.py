"""The report as a reader meets it: verdict, frontier, tables, problems; on a phone and in the dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from s3dlm.evaluation import report
from s3dlm.evaluation.accuracy_chart import log_ticks
from s3dlm.evaluation.plan import Plan, as_sweep, grid, unique
from s3dlm.evaluation.run import evaluate
from tests.evaluation.small_run import defaults, small_model, small_plan, write_task

LABELS = ("greedy", "baseline", "best_of_k", "s3")
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page")
    main = small_plan(task := write_task(place, 6), LABELS, traces=1)
    swept = grid([task], ["best_of_k", "s3"], defaults, sweeps={"particles": [1, 2, 4]})
    conditions = unique([*main.conditions, *as_sweep(swept, None)])
    evaluate(small_model(), Plan(conditions, main.problems, main.seeds, traces=1), place / "run")
    return report.write(place / "run").html


@pytest.mark.parametrize(
    ("low", "high"), [(1, 9), (20, 41), (33.5, 70), (8, 2100), (0.7, 3), (64, 100_000)]
)
def test_log_ticks_are_round_and_enough(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)
    assert all(
        re.fullmatch(r"(1|1\.5|[234568])", f"{float(f'{t:e}'.split('e')[0]):g}") for t in ticks
    )


def test_verdict_then_frontier_then_tables_then_problems(html: Path) -> None:
    text = html.read_text()
    places = [
        text.index(part)
        for part in ('class="verdict"', 'id="accuracy_nfe"', 'id="accuracy"', 'id="problems"')
    ]
    assert places == sorted(places)
    assert text.count('id="accuracy_nfe"') == 1
    assert "best_of_k, N = 4, b = 1" in text  # a point says what it is


def test_survivors_and_traces_are_in_the_file_itself(html: Path) -> None:
    found = re.search(r'id="data">(.*?)</script>', html.read_text(), re.DOTALL)
    assert found
    rows = {row["label"]: row for row in json.loads(found[1])["problems"][0]["rows"]}
    assert sum(count for count, *_ in rows["s3"]["survivors"]) == 2
    assert all("<answer>" in text for *_, text in rows["s3"]["survivors"])
    steps = [step for step, _, _ in rows["s3"]["story"]]
    assert steps == sorted(set(steps))
    assert rows["s3"]["story"][-1][0] <= 4
    assert rows["best_of_k"]["story"] == []  # it scores nothing


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip("no browser: /usr/bin/chromium is missing (`make browser`)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield running
        running.close()


SMALLEST = """() => Math.min(...[...document.querySelectorAll("body *")]
  .filter((node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
  .filter((node) => node.getClientRects().length && !node.closest("script, style, title"))
  .map((node) => {
    const svg = node.ownerSVGElement;
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(node).fontSize) * scale;
  }))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_can_be_read(browser: Any, html: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(html.as_uri())
    page.locator(".problem details summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALLEST) >= 11
    marks, answer = (
        page.locator(f".problem tr:first-child > td:nth-child({n})").first.bounding_box()
        for n in (2, 3)
    )
    assert marks["x"] + marks["width"] <= answer["x"] + 1
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 26)"}[scheme]
    page.close()


def test_problems_can_be_searched(browser: Any, html: Path) -> None:
    page = browser.new_page()
    page.goto(html.as_uri())
    assert page.locator(".problem").count() == 6
    page.fill("#words", "problem 3.")
    assert page.locator(".problem").count() == 1
    page.fill("#words", "6*4*12</answer>")  # words of an output
    assert 0 < page.locator(".problem").count() <= 6
    page.fill("#words", "nothing has this")
    assert page.locator(".problem").count() == 0
    page.close()
