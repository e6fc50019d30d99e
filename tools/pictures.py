"""README's pictures: python -m tools.pictures [chart|moving]

`chart` draws the five curves of README, over both costs, out of docs/images/five_curves.csv. That is what the frontier study
wrote as figures/frontier.csv of the folder `runs/five` (docs/frontier.md has the commands). `moving` records a search
in the terminal's board and the viewer's example, frame by frame, as one GIF; it needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

import s3dlm
from s3dlm import board
from s3dlm.evaluation.figures import accuracy_over_nfe, styles_of
from s3dlm.viewer.page import standalone

IMAGES = Path(__file__).parents[1] / "docs" / "images"
EXAMPLE = Path(s3dlm.__file__).parent / "viewer" / "static" / "example.jsonl"
CHROMIUM, FLAGS = (
    "/usr/bin/chromium",
    ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
)
SIZE = (900, 720)
QUESTION = (
    "Zoe has 9 packs of 5 shells. She buys 8 packs of 6. How many shells does she have in the end?"
)
TITLE = "revise on tiny"
CURVES = {
    "greedy": "greedy decoding, adaptive reveal",
    "best_of_k": "majority vote of K samples",
    "s3": "S³",
    "restarts": "restarts, the same verifier",
    "revise": "revise: draft, verify, re-mask or restart",
}
COSTS = {
    "nfe": "forward passes made per problem",
    "nfe_logical": "forward passes without sharing equal drafts",
}


def chart() -> None:
    rows = pd.read_csv(IMAGES / "five_curves.csv")
    rows = rows[(rows.scope == rows.scope[0]) & rows.label.isin(list(CURVES))]
    styles = {CURVES[name]: style for name, style in styles_of(CURVES).items()}
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    for axis, (cost, label) in zip(figure.subplots(1, 2, sharey=True), COSTS.items(), strict=True):
        drawn = rows.assign(label=rows.label.map(CURVES), nfe=rows[cost])
        accuracy_over_nfe(axis, drawn, styles)
        axis.set_xlabel(label)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("right answers (%)")
    figure.axes[0].legend(frameon=False, loc="lower right")
    figure.savefig(IMAGES / "five_curves.png", dpi=140)


def moving() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(
            viewport={"width": SIZE[0], "height": SIZE[1]},
            color_scheme="dark",
            reduced_motion="reduce",
        )
        frames = [*terminal(page), *viewer(page)]
        browser.close()
    first, *rest = [picture.quantize(64) for picture, _ in frames]
    first.save(
        IMAGES / "search.gif",
        save_all=True,
        append_images=rest,
        duration=[milliseconds for _, milliseconds in frames],
        loop=0,
        optimize=True,
    )


def terminal(page: Any) -> Iterator[tuple[Image.Image, int]]:
    """The board of README's command, in a terminal of 80 columns, with time to see what is re-masked."""
    model = s3dlm.load("tiny", progress=False)
    search = s3dlm.stream(model, QUESTION)
    drawn = board.Board(board.pieces_of(model), model.end_ids, TITLE, None, 80)
    for event in (*search, search.result):
        for picture in drawn.pictures(event):
            console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True)
            console.print(f'$ s3dlm generate "{QUESTION}"', highlight=False)
            console.print(picture)
            yield framed(page, console), 600 if drawn.last is event else 2000
    console.print(f"answer: {search.result.answer}   {search.result.nfe} forward passes")
    yield framed(page, console), 2600


def framed(page: Any, console: Console) -> Image.Image:
    drawing = console.export_svg(title="s3dlm generate", clear=False)
    style = "body{margin:0;height:88vh;padding-top:12vh;text-align:center;background:#0d1117}"
    page.set_content(f"<style>{style} svg{{width:94vw}}</style>{drawing}")
    return shot(page)


def viewer(page: Any) -> Iterator[tuple[Image.Image, int]]:
    """The recorded search that the viewer begins with."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(standalone([EXAMPLE]))
        page.goto(file.as_uri())
        page.locator(".grid").first.wait_for()
        page.keyboard.press("Home")
        total = len(s3dlm.read_trace(EXAMPLE).events) - 1
        for step in range(total):
            yield shot(page), 2600 if step == total - 1 else 260
            page.keyboard.press("ArrowRight")


def shot(page: Any) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


if __name__ == "__main__":
    pictures = {"chart": chart, "moving": moving}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", nargs="?", choices=pictures, help="which one; default: both")
    chosen = parser.parse_args().picture
    for picture in [chosen] if chosen else pictures:
        pictures[picture]()
