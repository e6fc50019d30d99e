"""The page in a real browser: run, step, compare, save, reopen; and not one word in the console."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm.evaluation.run import evaluate
from s3dlm.models.base import Defaults
from s3dlm.trace import read_trace
from s3dlm.viewer.page import standalone
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.fakes import events_of, fake_model
from tests.server.live import PUZZLE, QUESTION, Live, serving
from tests.server.test_door import KEY

CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if not CHROMIUM.exists():
    pytest.skip(
        "no browser: /usr/bin/chromium is missing (`make browser`)", allow_module_level=True
    )

SETTINGS = {"method": "s3", "gen_length": 56, "steps": 14, "block_length": 56}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with serving(defaults=SETTINGS) as live:
        yield live


@pytest.fixture
def noisy(browser: Any) -> Iterator[Any]:
    """A page that may write to its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(900_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(noisy: Any) -> Iterator[Any]:
    """A page that fails the test if anything is written to its console or breaks."""
    complaints: list[str] = []
    noisy.on("console", lambda message: complaints.append(message.text))
    noisy.on("pageerror", lambda error: complaints.append(str(error)))
    yield noisy
    assert complaints == []


def run(page: Any, server: Live, question: str = QUESTION, **choices: str) -> None:
    """Ask a question and wait for its answers."""
    page.goto(server.url)
    page.fill("#prompt", question)
    for label, value in {"Task": "countdown", **choices}.items():
        choose(page, label, value)
    search(page, 2 if "Compare with" in choices else 1)


def choose(page: Any, label: str, value: str) -> None:
    page.get_by_label(label, exact=True).select_option(value)


def unfold(page: Any, summary: str) -> None:
    page.locator("summary", has_text=summary).click()


def search(page: Any, panels: int = 1) -> None:
    page.get_by_role("button", name="Search").click()
    finished(page, panels)


def finished(page: Any, panels: int = 1) -> None:
    """Wait until every search has ended, and go to the end of the time."""
    page.locator(".panel").nth(panels - 1).wait_for()
    for index in range(panels):
        page.locator(".panel").nth(index).locator(".votes").wait_for()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("End")


def masked(page: Any) -> int:
    return int(page.locator(".panel .particle").first.locator(".m").count())


def clock(page: Any) -> str:
    return str(page.locator(".clock").inner_text())


def fits(page: Any, width: int, *boxes: Any) -> None:
    """Nothing stands out of the page when it is so wide."""
    page.set_viewport_size({"width": width, "height": 800})
    # Redrawn in the next frame; the page's policy forbids what wait_for_function would do.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for box in (each.bounding_box() for each in boxes):
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def write_page(lines: list[str], folder: Path, copies: int = 1) -> Path:
    """The page of its own that a trace gets."""
    path, out = folder / "trace.jsonl", folder / "trace.html"
    path.write_text("\n".join(lines) + "\n")
    out.write_text(standalone([path] * copies), encoding="utf-8")
    return out


def test_steps_are_gone_through_by_keys_and_clock(page: Any, server: Live) -> None:
    page.clock.install(time=0)
    run(page, server)
    _, *steps, result = map(json.loads, server.lines(task="countdown", method="s3"))
    assert page.locator(".final").inner_text() == result["text"]
    counts = [masked(page)]
    for _ in range(13):
        page.keyboard.press("ArrowLeft")
        counts.append(masked(page))
    assert clock(page) == "1 / 14"
    assert counts == sorted(counts)
    assert counts[0] == 0 < 20 < counts[-1]
    page.clock.pause_at(10**9)  # from here on, time passes only when the test says so
    page.keyboard.press("Space")
    page.clock.run_for(500)
    page.keyboard.press("Space")
    page.clock.run_for(2000)
    assert clock(page) == "5 / 14"
    survivors = len(set(steps[4]["survivor"]))
    assert page.locator(".particle").count() == survivors
    page.get_by_label("All children").check()
    assert page.locator(".particle").count() == 8
    assert page.locator(".particle.dead").count() == 8 - survivors
    # Steps after which every particle has one heir are folded; the first never is.
    parents = [[step["parent"][child] for child in step["survivor"]] for step in steps]
    changed = 1 + sum(len(set(heirs)) < len(heirs) for heirs in parents[1:])
    assert page.locator(".node").count() == 8 * changed < 8 * 14
    assert page.locator(".folded").inner_text().startswith(f"{changed} of 14 steps are drawn")
    page.get_by_label("Every step").check()
    assert page.locator(".node").count() == 8 * 14


def test_the_particle_under_the_pointer_is_explained(page: Any, server: Live) -> None:
    run(page, server)
    page.keyboard.press("ArrowLeft")
    page.get_by_label("All children").check()
    headline = page.locator(".headline")
    for row in (2, 6):
        page.locator(".particle").nth(row).hover()
        assert f"Particle {row + 1}, step 13" in headline.inner_text()
        shown = page.locator(".particle").nth(row).locator(".value").inner_text()
        assert page.locator(".figure").inner_text() == shown
    assert page.locator(".parts li").count() == 6
    page.locator("h1").hover()
    page.locator("h1").click()
    page.keyboard.press("ArrowDown")
    before = headline.locator("b").inner_text()
    page.keyboard.press("ArrowUp")
    assert headline.locator("b").inner_text() != before
    box = page.locator(".genealogy").bounding_box()
    place = box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3
    page.mouse.move(*place)
    assert re.search(r"step [678]\b", headline.inner_text())
    page.mouse.click(*place)
    assert clock(page) in ("6 / 14", "7 / 14", "8 / 14")


def test_compare_save_and_reopen(page: Any, server: Live, tmp_path: Path) -> None:
    run(page, server, **{"Compare with": "best_of_k"})
    assert page.locator(".panel h2").all_inner_texts() == ["s3", "best_of_k"]
    boxes = [page.locator(".panel").nth(index).bounding_box() for index in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    finals, saved = page.locator(".final").all_inner_texts(), []
    for index in (0, 1):
        with page.expect_download() as download:
            page.get_by_role("button", name="Save trace").nth(index).click()
        saved.append(tmp_path / download.value.suggested_filename)
        download.value.save_as(saved[-1])
        trace = read_trace(saved[-1])
        assert len(list(trace)) == 15
        assert trace.header["question"] == QUESTION
    page.goto(server.url)
    page.set_input_files("#file", [str(path) for path in saved])
    finished(page, 2)
    assert page.locator(".final").all_inner_texts() == finals


def test_a_recorded_trace_is_one_file_that_runs_no_other_code(
    noisy: Any, server: Live, tmp_path: Path
) -> None:
    requested: list[str] = []
    noisy.on("request", lambda request: requested.append(request.url))
    out = write_page(server.lines("</script><b>x</b>"), tmp_path, copies=2)
    injected = '<script>window.ran = true</script><img src="x" onerror="window.ran = true">'
    out.write_text(out.read_text().replace("<main", f"{injected}<main"))
    noisy.goto(out.as_uri())
    finished(noisy, 2)
    assert noisy.evaluate("window.ran") is None
    assert noisy.locator("q").inner_text() == "</script><b>x</b>"
    assert noisy.locator("#ask").is_hidden()
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []


def test_what_is_wrong_is_shown(noisy: Any, server: Live, tmp_path: Path) -> None:
    """A file that is no trace, however late the server answers, and a search that is refused."""
    path = tmp_path / "other.jsonl"
    late: list[Any] = []
    path.write_text('{"a": 1}\n')
    noisy.route("**/v1/options", lambda route: late.append(route))
    noisy.goto(server.url)
    noisy.set_input_files("#file", str(path))
    alert = noisy.get_by_role("alert")
    alert.filter(has_text="not a trace").wait_for()
    late.pop().continue_()  # the server's answer must not wipe it away
    noisy.locator("#ask form").wait_for()
    alert.filter(has_text="not a trace").wait_for()
    noisy.fill("#prompt", "x")
    unfold(noisy, "Settings")
    unfold(noisy, "More of decoding")
    noisy.locator("input[name=steps]").fill("500")
    noisy.get_by_role("button", name="Search").click()
    alert.filter(has_text="The search failed: steps=500").wait_for()
    drawn = noisy.locator("svg.chart:visible, svg.genealogy:visible, .transport:visible")
    assert drawn.count() == 0


@pytest.mark.parametrize(("scheme", "against"), [("dark", "baseline"), ("light", "")])
def test_fits_every_width(noisy: Any, server: Live, scheme: str, against: str) -> None:
    noisy.emulate_media(color_scheme=scheme)
    run(noisy, server, **{"Compare with": against} if against else {})
    assert noisy.evaluate("document.documentElement.dataset.theme") == scheme
    for width in (1600, 1000, 820, 700, 360):
        fits(noisy, width, noisy.locator(".genealogy").first)
    noisy.get_by_role("button", name="Switch between light and dark").click()
    assert noisy.evaluate("document.documentElement.dataset.theme") != scheme


def test_the_page_asks_for_the_key_and_plays_a_recorded_search_before_the_first_question(
    noisy: Any,
) -> None:
    asked: list[str] = []
    noisy.on("request", lambda request: asked.append(request.url))
    with serving(defaults=SETTINGS, api_key=KEY) as closed:
        noisy.goto(closed.url)
        noisy.get_by_label("API key").fill(KEY)
        noisy.get_by_role("button", name="Continue").click()
        noisy.locator("#prompt").wait_for()
        noisy.locator(".grids .particle").first.wait_for()
    assert noisy.get_by_role("heading", name="A diffusion model fills").is_visible()
    assert not any(url.endswith("/v1/search") for url in asked)  # nothing is computed for it


def test_a_link_repeats_a_search_and_the_history_knows_it(page: Any, server: Live) -> None:
    run(page, server, **{"Compare with": "best_of_k"})
    finals, link = page.locator(".final").all_inner_texts(), page.url
    page.goto("about:blank")
    page.goto(link)
    page.locator("#ask form").wait_for()
    assert page.locator("#prompt").input_value() == QUESTION
    assert page.locator(".panel").count() == 0  # another site may have opened it
    search(page, 2)
    assert page.locator(".final").all_inner_texts() == finals
    page.goto("about:blank")
    page.goto(server.url)
    menus = page.locator(".menu:visible")
    unfold(page, "History")
    assert menus.count() == 1
    page.keyboard.press("Escape")
    assert menus.count() == 0
    assert page.evaluate("document.activeElement.textContent").startswith("History")
    unfold(page, "History")
    page.mouse.click(5, 800)
    assert menus.count() == 0
    unfold(page, "History")
    fits(page, 390, menus)  # a phone
    question = page.locator(".rows .what").first
    assert question.evaluate("(node) => node.scrollWidth <= node.clientWidth")  # not cut off
    page.locator(".menu a", has_text="s3 | best_of_k").click()
    finished(page, 2)
    assert page.locator(".final").all_inner_texts() == finals


def test_prompt_gold_and_grade_of_recorded_searches_are_shown_and_fill_the_form(
    page: Any, server: Live, tmp_path: Path
) -> None:
    plan = small_plan(write_task(tmp_path, 1), ("greedy", "s3"), (0,), traces=1)
    evaluate(small_model(), plan, tmp_path / "run")
    traces = (tmp_path / "run").glob("traces/*.jsonl")
    recorded = sorted(traces, key=lambda path: str(read_trace(path).header["label"]))
    page.goto(server.url)
    page.fill("#prompt", "an old question")
    page.set_input_files("#file", [str(recorded[0])])
    finished(page)
    assert page.locator(".panel h2").inner_text() == "greedy"
    prompt = playwright.expect(page.locator("#prompt"))
    prompt.to_have_value("Problem 0. Target: 22 Numbers: 6, 4, 12")
    assert page.get_by_label("Method", exact=True).input_value() == "greedy"
    assert page.locator("input[name=temperature]").is_disabled()  # a greedy answer has none
    assert page.locator("input[name=gen_length]").input_value() == "24"
    assert page.locator("input[name=seed]").input_value() == ""  # the default
    title = page.locator(".canvas .t").first.get_attribute("title")
    assert re.fullmatch(r"accepted with probability \d+ %", title)
    out = recorded[0].with_suffix(".html")
    out.write_text(standalone(recorded), encoding="utf-8")
    page.goto(out.as_uri())
    finished(page, 2)
    for path, panel in zip(recorded, page.locator(".panel").all(), strict=True):
        words = panel.locator(".graded").inner_text()
        if read_trace(path).header["correct"] == 1:
            assert words.startswith("✓ right")
        else:
            assert words.startswith("✗ wrong")
            assert "gold: any expression of 6, 4 and 12 that makes 22" in words
    page.locator(".prompt summary").first.click()
    assert "Problem 0. Target" in page.locator(".prompt pre").first.inner_text()


def test_the_page_of_a_trace_shows_what_it_has(page: Any, server: Live, tmp_path: Path) -> None:
    header, *steps, last = server.lines(method="revise", rounds=3, budget=20)
    sure = json.dumps({**json.loads(last), "p_correct": 0.83})
    page.goto(write_page([header, *steps, sure], tmp_path).as_uri())
    finished(page)
    assert "probably right: 83 %" in page.locator(".graded").inner_text()
    charts, columns = page.locator(".chart").all(), page.locator(".small").all()
    for chart, column in zip(charts, columns, strict=True):  # charts fill their columns
        width = column.bounding_box()["width"]
        assert float(chart.get_attribute("width")) == pytest.approx(width, abs=2)
    facts, whole = page.locator(".sum"), json.loads(last)["nfe"]
    assert f"{whole} passes" in facts.inner_text()
    assert "budget" in facts.inner_text()  # why it ended
    page.keyboard.press("ArrowLeft")
    assert f"{whole - json.loads(steps[-1])['nfe']} passes" in facts.inner_text()
    page.goto(write_page([header, steps[0], last], tmp_path).as_uri())
    finished(page)
    assert page.locator(".below").is_hidden()  # nothing is folded


def test_the_form_has_every_setting_and_each_method_gets_those_it_uses(
    page: Any, server: Live, tmp_path: Path
) -> None:
    """The form is made from the schema of the settings, and only what is filled in is sent."""
    page.goto(server.url)
    page.fill("#prompt", QUESTION)
    choose(page, "Compare with", "baseline")
    unfold(page, "Settings")
    names = {one["name"] for one in server.http.get("/v1/options").json()["settings"]} - {"method"}
    assert {"particles", "temperature", "guidance"} <= names
    fields = page.locator("details [name]")
    assert {one.get_attribute("name") for one in fields.all()} == names
    assert sum(one.is_visible() for one in fields.all()) == 5  # what most people change
    unfold(page, "More of the method")
    choose(page, "Cadence", "block")
    choose(page, "Resampling", "systematic")
    page.locator("input[name=temperature]").fill("0.9")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    search(page, 2)
    wanted = {"cadence": "block", "resampling": "systematic", "temperature": 0.9}
    bodies = [request.post_data_json for request in asked if request.url.endswith("/v1/search")]
    assert sorted(bodies, key=len) == [
        {"prompt": QUESTION, "method": "baseline", "temperature": 0.9},
        {"prompt": QUESTION, "method": "s3", **wanted},
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").first.click()
    download.value.save_as(tmp_path / "trace.jsonl")
    settings = read_trace(tmp_path / "trace.jsonl").header["settings"]
    assert {name: settings[name] for name in wanted} == wanted
    # What a method lacks is left out.
    assert page.locator(".sum").first.inner_text().startswith("N 4 · b 2 · ")
    assert page.locator(".sum").last.inner_text()[0].isdigit()
    charts = [panel.locator("figcaption b").all_inner_texts()
              for panel in page.locator(".panel").all()]  # fmt: skip
    without = ["Effective sample size", "Confidence"]
    assert charts == [["Score", *without], without]


def test_another_method_loads_its_own_settings(page: Any) -> None:
    own = {"*": SETTINGS, "tilting": {"temperature": 1.5}}
    model = replace(fake_model(), defaults=Defaults("tiny", ("countdown",), own))
    with serving(model, defaults={}) as live:
        page.goto(live.url)
        choose(page, "Method", "s3")
        unfold(page, "Settings")
        unfold(page, "More of the method")
        lam = page.locator("input[name=lam]")
        lam.fill("3")
        choose(page, "Method", "tilting")
        page.locator("input[name=temperature][placeholder='1.5']").wait_for()
        choose(page, "Method", "baseline")
        assert lam.is_disabled()
        choose(page, "Method", "s3")
        assert lam.input_value() == ""
        page.locator("input[name=temperature][placeholder='0.7']").wait_for()


def test_the_form_gets_the_same_answer_as_python(page: Any) -> None:
    """The other ways in are compared in tests/test_same_answer.py."""
    question, model = "Target: 15 Numbers: 10, 1, 6", s3dlm.load("tiny")
    expected = s3dlm.generate(model, question, task="countdown", method="revise")
    with serving(model, defaults={}) as live:
        run(page, live, question, Method="revise")
        assert expected.text in page.locator(".panel").first.inner_text()


def test_a_text_with_holes_is_filled_and_shown_with_what_was_known(page: Any, server: Live) -> None:
    holes = page.get_by_label("Answer with holes")
    text = "6 * 4 = [[2]]. <answer>[[5]]</answer>"
    page.goto(server.url)
    unfold(page, "Settings")
    unfold(page, "An answer with holes")
    holes.fill(text)
    with page.expect_request("**/v1/search") as asked:
        search(page)  # the prompt may be empty
    assert asked.value.post_data_json == {"prompt": "", "infill": text, "method": "s3"}
    final = page.locator(".final").inner_text()
    assert re.fullmatch(r"6 \* 4 = ..\. <answer>.{5}</answer>", final)
    page.keyboard.press("Home")
    row = page.locator(".particle").first
    known = row.get_by_title("known from the start").count()
    assert known == len("6 * 4 = . <answer></answer>")
    filled = row.locator(".t").count() - known + masked(page)
    assert filled == 2 + 5
    page.locator(".example").first.click()  # asks for a whole answer
    assert holes.input_value() == ""


def classes_of(page: Any) -> list[str]:
    """The classes of the first particle's cells, without those that draw boxes."""
    cells = page.locator(".particle").first.locator(".grid .cell")
    names = cells.evaluate_all("cells => cells.map((cell) => cell.className)")
    return [" ".join(set(name.split()) - {"cell", "left", "top"}) for name in names]


def test_a_puzzle_is_asked_and_shown_as_a_grid_that_fills(page: Any) -> None:
    with serving(s3dlm.load("sudoku9"), defaults={}) as live:
        run(page, live, PUZZLE, Task="sudoku9_open", Method="s3")
        cells = classes_of(page)
        assert len(cells) == 81
        assert cells.count("clue") == 30
        assert not any(kind in cell for cell in cells for kind in ("m", "wrong"))
        shown = "".join(page.locator(".particle").first.locator(".cell").all_inner_texts())
        assert shown == page.locator(".final").inner_text()
        assert page.locator(".legend .cell").count() == 6
        page.keyboard.press("Home")
        assert classes_of(page).count("m") > 10
        fits(page, 390)


def test_doubles_and_cells_taken_back_can_be_seen(page: Any, tmp_path: Path) -> None:
    model = s3dlm.load("sudoku9")
    settings = s3dlm.Settings.for_model(model, "baseline")
    path = tmp_path / "first.jsonl"
    events = events_of(model, PUZZLE, settings=settings)
    list(s3dlm.write_trace(path, model, events, question=PUZZLE, settings=settings))
    header, *_, step, result = map(json.loads, path.read_text().splitlines())
    # As if the last step had ended with a double, and a second round had taken two digits back.
    header["columns"] = 9
    tokens = list(step["tokens"][0])
    tokens[2] = tokens[3]
    hidden = [-1 if cell in (2, 6) else token for cell, token in enumerate(tokens)]
    first = step | {"tokens": [tokens], "clean": [tokens], "parent": [-1], "survivor": [0]}
    first["pieces"] = {str(token): str(token + 1) for token in range(9)}
    changed = [(token + 1) % 9 if cell == 5 else token for cell, token in enumerate(hidden)]
    second = first | {"tokens": [changed], "parent": [0], "round": 1}
    lines = [json.dumps(line) for line in (header, first, second, result)]
    page.goto(write_page(lines, tmp_path).as_uri())
    page.locator(".grid").first.wait_for()
    page.keyboard.press("Home")
    cells = classes_of(page)
    assert [cell for cell, name in enumerate(cells) if "wrong" in name] == [2, 3, 38]
    page.keyboard.press("ArrowRight")
    cells = classes_of(page)
    assert [cell for cell, name in enumerate(cells) if "back" in name.split()] == [2, 6]
    assert [cell for cell, name in enumerate(cells) if "new" in name.split()] == [5]
    gone = page.locator(".cell.back[title]").first.get_attribute("title")
    assert gone.startswith(f"taken back: it was {tokens[2] + 1}; predicted")
    page.locator(".toggle", has_text="Look-ahead").locator("input").uncheck()
    assert page.locator(".grid .cell.m").all_inner_texts() == ["", ""]
