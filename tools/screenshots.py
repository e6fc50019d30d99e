"""Take the pictures of docs/images again: python -m tools.screenshots"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import s3dlm
from s3dlm import tasks
from s3dlm.viewer.page import standalone
from tests.fakes import events_of
from tests.server.live import Live, serving

IMAGES = Path(__file__).parents[1] / "docs" / "images"
QUESTION = "Target: 15 Numbers: 10, 1, 6"  # the README's
EXAMPLE = Path(s3dlm.__file__).parent / "viewer" / "static" / "example.jsonl"  # plays at first
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def save(page: Any, name: str) -> None:
    """The page as it is, in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.quantize(256).save(IMAGES / f"{name}.png", optimize=True)
    page.close()


def take(
    browser: Any, live: Live, name: str, scheme: str, method: str, against: str, back: int, height: int
) -> None:  # fmt: skip
    """A search, or two beside each other, so many steps before the end."""
    page = browser.new_page(
        viewport={"width": 1440, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page.set_default_timeout(900_000)
    page.goto(live.url)
    page.fill("#prompt", QUESTION)
    page.get_by_label("Task", exact=True).select_option("countdown")
    page.get_by_label("Method", exact=True).select_option(method)
    page.get_by_label("Compare with", exact=True).select_option(against)
    page.get_by_role("button", name="Search").click()
    for index in range(2 if against else 1):
        page.locator(".panel").nth(index).locator(".answer b").wait_for()
    page.locator("h1").click()
    page.keyboard.press("End")
    for _ in range(back):
        page.keyboard.press("ArrowLeft")
    if not against:
        page.locator(".toggle", has_text="All children").locator("input").check()
        page.locator("h1").click()
    page.mouse.move(5, 5)
    save(page, name)


def take_grids(browser: Any) -> None:
    """A search that re-masks repeated digits, at the start of its second round."""
    model = s3dlm.load("sudoku9")
    task = tasks.load(tasks.get("sudoku9_open"), prompt_style="tiny", split="validation", limit=1)
    question = task.samples[0].question
    settings = s3dlm.Settings.for_model(model, "mend", "sudoku9_open", particles=4)
    with TemporaryDirectory() as folder:
        trace, page_file = EXAMPLE, Path(folder) / "page.html"
        events = events_of(model, question, task="sudoku9_open", settings=settings)
        *steps, _ = s3dlm.write_trace(
            trace, model, events, question=question, task="sudoku9_open", settings=settings
        )
        page_file.write_text(standalone([trace]))
        page = browser.new_page(
            viewport={"width": 1200, "height": 840}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto(page_file.as_uri())
        page.locator(".grid").first.wait_for()
        page.keyboard.press("Home")
        for _ in range([getattr(step, "round", 0) for step in steps].index(1)):
            page.keyboard.press("ArrowRight")
        save(page, "viewer-grids")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    model = s3dlm.load("tiny", progress=False)
    with (
        serving(model, defaults={"method": "revise"}) as live,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        take(browser, live, "viewer-search", "dark", "s3", "", 6, 1210)
        take(browser, live, "viewer-compare", "light", "revise", "best_of_k", 0, 1095)
        take_grids(browser)
        browser.close()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
