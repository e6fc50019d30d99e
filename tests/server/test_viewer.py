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
from s3dlm.models.defaults import Defaults
from s3dlm.server import declared
from s3dlm.trace import read_trace
from s3dlm.viewer.page import standalone
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.fakes import fake_model
from tests.server.live import Live, serving

CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if not CHROMIUM.exists():
    pytest.skip(
        "no browser: /usr/bin/chromium is missing (`make browser`)", allow_module_level=True
    )

SETTINGS = {"gen_length": 56, "steps": 14, "block_length": 56, "particles": 4, "branching": 2}
QUESTION = "Target: 24 Numbers: 6, 4, 12"
KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with serving(fake_model(), defaults=SETTINGS) as live:
        yield live


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test if anything is written to its console or breaks."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(240_000)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert complaints == []


def ask(page: Any, server: Live, question: str = QUESTION, **choices: str) -> None:
    page.goto(server.url)
    page.fill("#prompt", question)
    for label, value in {"Task": "countdown", **choices}.items():
        page.get_by_label(label, exact=True).select_option(value)
    page.get_by_role("button", name="Search").click()


def finished(page: Any, panels: int = 1) -> None:
    """Wait until every search has ended and the time has played to its end."""
    page.locator(".panel").nth(panels - 1).wait_for()
    for index in range(panels):
        page.locator(".panel").nth(index).locator(".votes").wait_for()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("End")


def masked(page: Any, panel: int = 0) -> int:
    row = page.locator(".panel").nth(panel).locator(".particle").first
    return int(row.locator(".m").count())


def test_run_step_and_scrub(page: Any, server: Live) -> None:
    ask(page, server)
    finished(page)
    assert page.locator(".clock").inner_text() == "14 / 14"
    assert masked(page) == 0
    final = page.locator(".final").inner_text()
    settings = {**SETTINGS, "method": "s3"}
    with server.http() as http:
        lines = http.post(
            "/v1/search",
            json={"prompt": QUESTION, "task": "countdown", **settings, "format": "jsonl"},
        ).text.splitlines()
    assert final == json.loads(lines[-1])["text"]
    counts = [masked(page)]
    for _ in range(13):
        page.keyboard.press("ArrowLeft")
        counts.append(masked(page))
    assert page.locator(".clock").inner_text() == "1 / 14"
    assert counts == sorted(counts)
    assert counts[-1] > 20
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.locator(".clock").inner_text() == "5 / 14"
    step = json.loads(lines[5])
    assert page.locator(".particle").count() == len(set(step["survivor"]))
    page.locator(".toggle", has_text="All children").locator("input").check()
    assert page.locator(".particle").count() == 8
    assert page.locator(".particle.dead").count() == 8 - len(set(step["survivor"]))
    changed = changing([json.loads(line) for line in lines[1:-1]])
    assert page.locator(".node").count() == 8 * changed < 8 * 14
    assert page.locator(".folded").inner_text().startswith(f"{changed} of 14 steps changed")
    page.get_by_label("Every step").check()
    assert page.locator(".node").count() == 8 * 14


def changing(steps: list[Any]) -> int:
    """Steps after which some particle has no heir or several; the first always counts."""
    parents = [[step["parent"][child] for child in step["survivor"]] for step in steps]
    return 1 + sum(len(set(some)) < len(some) for some in parents[1:])


def test_the_particle_under_the_pointer_is_explained(page: Any, server: Live) -> None:
    ask(page, server)
    finished(page)
    page.keyboard.press("ArrowLeft")
    page.locator(".toggle", has_text="All children").locator("input").check()
    for row in (2, 6):
        page.locator(".particle").nth(row).hover()
        assert f"Particle {row + 1}, step 13" in page.locator(".headline").inner_text()
        shown = page.locator(".particle").nth(row).locator(".value").inner_text()
        assert page.locator(".figure").inner_text() == shown
    assert page.locator(".parts li").count() == 6
    page.locator("h1").hover()
    page.locator("h1").click()
    page.keyboard.press("ArrowDown")
    before = page.locator(".headline b").inner_text()
    page.keyboard.press("ArrowUp")
    assert page.locator(".headline b").inner_text() != before
    box = page.locator(".genealogy").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    assert re.search(r"step [678]\b", page.locator(".headline").inner_text())
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    assert page.locator(".clock").inner_text() in ("6 / 14", "7 / 14", "8 / 14")


def test_space_plays_and_pauses(page: Any, server: Live) -> None:
    page.clock.install(time=0)
    ask(page, server)
    finished(page)
    page.keyboard.press("Home")
    page.clock.pause_at(10**9)  # from here on, time passes only when the test says so
    page.keyboard.press("Space")
    page.clock.run_for(500)
    assert page.locator(".clock").inner_text() == "5 / 14"
    page.keyboard.press("Space")
    page.clock.run_for(2000)
    assert page.locator(".clock").inner_text() == "5 / 14"


def test_compare_save_and_reopen(page: Any, server: Live, tmp_path: Path) -> None:
    ask(page, server, **{"Compare with": "best_of_k"})
    finished(page, 2)
    assert page.locator(".panel h2").all_inner_texts() == ["s3", "best_of_k"]
    boxes = [page.locator(".panel").nth(i).bounding_box() for i in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    finals = page.locator(".final").all_inner_texts()
    saved = []
    for index in (0, 1):
        with page.expect_download() as download:
            page.get_by_role("button", name="Save trace").nth(index).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        saved.append(path)
        trace = read_trace(path)
        assert len(list(trace)) == 15
        assert trace.header["question"] == QUESTION
    page.goto(server.url)
    page.set_input_files("#file", [str(path) for path in saved])
    finished(page, 2)
    assert page.locator(".final").all_inner_texts() == finals


def test_a_recorded_trace_as_one_file(page: Any, server: Live, tmp_path: Path) -> None:
    path, out = tmp_path / "trace.jsonl", tmp_path / "trace.html"
    body = {"prompt": "</script><b>x</b>", "format": "jsonl", **SETTINGS}
    with server.http() as http:
        path.write_bytes(http.post("/v1/search", json=body).content)
    out.write_text(standalone([path, path]), encoding="utf-8")
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url))
    page.goto(out.as_uri())
    finished(page, 2)
    assert page.locator("q").inner_text() == "</script><b>x</b>"
    assert page.locator("#ask").is_hidden()
    assert [url for url in outside if not url.startswith(("file:", "data:"))] == []
    assert not page.get_by_label("Prompt", exact=True).count()
    # Its policy lets no other code run, nor anything leave the page.
    assert "default-src 'none'" in page.locator("meta[http-equiv]").get_attribute("content")


def test_a_recorded_page_runs_no_foreign_code(browser: Any, server: Live, tmp_path: Path) -> None:
    path, out = tmp_path / "trace.jsonl", tmp_path / "trace.html"
    body = {"prompt": QUESTION, "format": "jsonl", **SETTINGS}
    with server.http() as http:
        path.write_bytes(http.post("/v1/search", json=body).content)
    injected = '<script>window.ran = true</script><img src="x" onerror="window.ran = true">'
    out.write_text(standalone([path]).replace("<main", f"{injected}<main"), encoding="utf-8")
    page = browser.new_page()
    page.goto(out.as_uri())
    page.locator(".votes").first.wait_for()
    assert page.evaluate("window.ran") is None
    page.close()


def test_a_file_that_is_no_trace(page: Any, server: Live, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    late: list[Any] = []
    path.write_text('{"a": 1}\n')
    page.route("**/v1/options", lambda route: late.append(route))
    page.goto(server.url)
    page.set_input_files("#file", str(path))
    page.get_by_role("alert").filter(has_text="not a trace").wait_for()
    late.pop().continue_()  # the server's answer must not wipe it away
    page.locator("#ask form").wait_for()
    page.get_by_role("alert").filter(has_text="not a trace").wait_for()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_fits_every_width(browser: Any, server: Live, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 1600, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    ask(page, server, **{"Compare with": "baseline"} if scheme == "dark" else {})
    finished(page, 2 if scheme == "dark" else 1)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    for width in (1600, 1000, 820, 700, 360):
        page.set_viewport_size({"width": width, "height": 800})
        # Redrawn in the next frame; the page's policy forbids what wait_for_function would do.
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator(".genealogy").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    context.close()


def test_the_page_asks_for_the_key(browser: Any) -> None:
    with serving(fake_model(), defaults=SETTINGS, api_key=KEY) as closed:
        page = browser.new_page()
        page.goto(closed.url)
        page.get_by_label("API key").fill(KEY)
        page.get_by_role("button", name="Continue").click()
        page.locator("#prompt").wait_for()
        page.close()


def test_a_refusal_is_shown(browser: Any, server: Live) -> None:
    page = browser.new_page()
    page.goto(server.url)
    page.fill("#prompt", "x")
    page.locator("summary", has_text="Settings").click()
    page.locator("input[name=steps]").fill("500")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("alert").filter(has_text="The search failed: steps=500").wait_for()
    assert page.locator("svg.chart:visible, svg.genealogy:visible, .transport:visible").count() == 0
    page.close()


def test_another_method_loads_its_own_settings(page: Any) -> None:
    own = {"*": SETTINGS, "tilting": {"temperature": 1.5}}
    model = replace(fake_model(), defaults=Defaults("tiny", ("countdown",), own))
    with serving(model, defaults={}) as live:
        page.goto(live.url)
        page.locator("summary", has_text="Settings").click()
        page.locator("input[name=lam]").fill("3")
        page.get_by_label("Method", exact=True).select_option("tilting")
        page.locator("input[name=temperature][placeholder='1.5']").wait_for()
        page.get_by_label("Method", exact=True).select_option("s3")
        assert page.locator("input[name=lam]").input_value() == ""
        page.locator("input[name=temperature][placeholder='0.7']").wait_for()


def test_a_link_repeats_a_search_and_the_history_knows_it(page: Any, server: Live) -> None:
    ask(page, server, **{"Compare with": "best_of_k"})
    finished(page, 2)
    finals, link = page.locator(".final").all_inner_texts(), page.url
    page.goto("about:blank")
    page.goto(link)
    finished(page, 2)
    assert page.locator(".final").all_inner_texts() == finals
    assert page.locator("#prompt").input_value() == QUESTION
    page.goto("about:blank")
    page.goto(server.url)
    page.locator("summary", has_text="History").click()
    page.locator(".menu a", has_text="s3 | best_of_k").click()
    finished(page, 2)
    assert page.locator(".final").all_inner_texts() == finals


def test_hover_prompt_gold_and_grade_of_a_recorded_run(page: Any, tmp_path: Path) -> None:
    task = write_task(tmp_path, 2)
    run = tmp_path / "first"
    evaluate(small_model(), small_plan(task, ("best_of_k", "s3"), (0,), traces=2), run)
    with serving(fake_model(), defaults=SETTINGS, runs=[run]) as live:
        page.goto(live.url)
        page.locator("summary", has_text="Recorded (4)").click()
        page.get_by_label("Find a recorded search").fill("problem 1.")
        assert page.locator(".rows li").count() == 2
        page.locator(".rows .beside").first.click()
        finished(page, 2)
        assert page.url.count("first%2F") == 2
        traces = sorted((run / "traces").glob("*-problems-0001.jsonl"))
        shown = {panel.locator("h2").inner_text(): panel.locator(".graded").inner_text()
                 for panel in page.locator(".panel").all()}  # fmt: skip
        for trace in traces:
            header = json.loads(trace.read_text().splitlines()[0])
            words = shown[header["settings"]["method"]]
            assert words.startswith("✓ right" if header["correct"] == 1 else "✗ wrong")
            assert (
                header["correct"] == 1
                or "gold: any expression of 6, 4 and 12 that makes 36" in words
            )
        title = page.locator(".canvas .t").first.get_attribute("title")
        assert re.fullmatch(r"revealed with probability \d+ %", title)
        page.locator(".prompt summary").first.click()
        assert "Problem 1. Target" in page.locator(".prompt pre").first.inner_text()
        with live.http() as http:
            assert len(http.get("/v1/traces").json()) == 4
            assert http.get("/v1/traces/first/../../samples").status_code == 404
            assert http.get("/v1/traces/..%2f..%2fetc%2fpasswd").status_code == 404


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with the records of two problems by three methods."""
    folder = tmp_path_factory.mktemp("recorded")
    labels = ("s3", "greedy", "best_of_k")  # not in the order of their names
    evaluate(small_model(), small_plan(write_task(folder, 2), labels, (0,), traces=2), folder)
    with serving(fake_model(), defaults=SETTINGS, runs=[folder]) as live:
        yield live


def open_records(page: Any, live: Live) -> Any:
    page.goto(live.url)
    page.locator("summary", has_text="Recorded").click()
    page.locator(".rows li").first.wait_for()
    return page.locator(".rows li")


def test_records_stand_in_the_runs_order_under_its_labels(page: Any, recorded: Live) -> None:
    rows = open_records(page, recorded)
    shown = [(row.locator("b").inner_text()[2:], row.locator(".note").inner_text())
             for row in rows.all()]  # fmt: skip
    samples = ("problems-0000", "problems-0001")
    labels = ("s3", "greedy", "best_of_k")
    assert shown == [(label, sample) for sample in samples for label in labels]
    rows.nth(1).locator("a").first.click()
    finished(page)
    assert page.locator(".panel h2").inner_text() == "greedy"


def test_every_word_of_the_filter_must_occur(page: Any, recorded: Live) -> None:
    rows = open_records(page, recorded)
    words = page.get_by_label("Find a recorded search")
    words.fill("36 greedy")
    assert rows.locator(".note").all_inner_texts() == ["problems-0001"]
    words.fill("greedy zebra")
    assert rows.count() == 0
    assert page.get_by_text("No recorded search has all these words.").is_visible()


def test_a_record_brings_its_question_and_settings(page: Any, recorded: Live) -> None:
    rows = open_records(page, recorded)
    page.keyboard.press("Escape")
    page.fill("#prompt", "an old question")
    page.locator("summary", has_text="Recorded").click()
    rows.nth(1).locator("a").first.click()  # by greedy
    finished(page)
    playwright.expect(page.locator("#prompt")).to_have_value(
        "Problem 0. Target: 22 Numbers: 6, 4, 12"
    )
    assert page.get_by_label("Method", exact=True).input_value() == "baseline"
    assert page.locator("input[name=temperature]").input_value() == "0"
    assert page.locator("input[name=gen_length]").input_value() == "24"
    assert page.locator("input[name=seed]").input_value() == ""  # the default


def test_menus_close_on_escape_and_on_a_click_outside(page: Any, recorded: Live) -> None:
    open_records(page, recorded)
    menus = page.locator(".menu:visible")
    page.keyboard.press("Escape")
    assert menus.count() == 0
    assert page.evaluate("document.activeElement.textContent").startswith("Recorded")
    page.locator("summary", has_text="History").click()
    page.locator("summary", has_text="Recorded").click()
    assert menus.count() == 1
    page.mouse.click(5, 800)
    assert menus.count() == 0


@pytest.mark.parametrize("name", ["History", "Recorded"])
def test_menus_fit_a_phone(page: Any, recorded: Live, name: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(recorded.url)
    page.locator("summary", has_text=name).click()
    box = page.locator(".menu:visible").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    if name == "Recorded":
        question = page.locator(".rows .what").first
        assert question.evaluate("(node) => node.scrollWidth <= node.clientWidth")  # not cut off


def test_what_a_method_lacks_is_left_out(page: Any, server: Live) -> None:
    ask(page, server, Method="baseline", **{"Compare with": "s3"})
    finished(page, 2)
    assert page.locator(".sum").first.inner_text().startswith("NFE")
    assert page.locator(".sum").last.inner_text().startswith("N 4 · b 2 · NFE")
    charts = [panel.locator("figcaption b").all_inner_texts()
              for panel in page.locator(".panel").all()]  # fmt: skip
    without = ["Effective sample size", "Confidence"]
    assert charts == [without, ["Score", *without]]


def trace_lines(server: Live) -> list[str]:
    """The trace of a search, line by line."""
    body = {"prompt": QUESTION, "format": "jsonl", **SETTINGS}
    with server.http() as http:
        return http.post("/v1/search", json=body).text.splitlines()


def open_standalone(page: Any, lines: list[str], folder: Path) -> None:
    """The page of its own that a trace gets."""
    path, out = folder / "trace.jsonl", folder / "trace.html"
    path.write_text("\n".join(lines) + "\n")
    out.write_text(standalone([path]), encoding="utf-8")
    page.goto(out.as_uri())


def test_nothing_is_said_of_folding_where_nothing_is_folded(
    page: Any, server: Live, tmp_path: Path
) -> None:
    header, first, *_, last = trace_lines(server)
    open_standalone(page, [header, first, last], tmp_path)
    finished(page)
    assert page.locator(".below").is_hidden()


def test_p_correct_is_shown_where_a_trace_has_it(page: Any, server: Live, tmp_path: Path) -> None:
    *lines, last = trace_lines(server)
    sure = json.dumps({**json.loads(last), "p_correct": 0.83})
    open_standalone(page, [*lines, sure], tmp_path)
    finished(page)
    assert "probably right: 83 %" in page.locator(".graded").inner_text()


def test_charts_of_a_standalone_page_fill_their_columns(
    page: Any, server: Live, tmp_path: Path
) -> None:
    open_standalone(page, trace_lines(server), tmp_path)
    page.locator(".votes").wait_for()
    for number in range(3):
        chart, column = page.locator(".chart").nth(number), page.locator(".small").nth(number)
        assert float(chart.get_attribute("width")) == pytest.approx(
            column.bounding_box()["width"], abs=2
        )


def test_a_budget_bounds_the_search_and_the_page_says_why_it_stopped(
    page: Any, server: Live
) -> None:
    page.goto(server.url)
    page.fill("#prompt", QUESTION)
    page.locator("summary", has_text="Settings").click()
    page.locator("input[name=budget]").fill("20")
    page.get_by_role("button", name="Search").click()
    finished(page)
    assert "budget" in page.locator(".sum").inner_text()


def test_the_form_has_every_setting_of_the_method(page: Any, server: Live, tmp_path: Path) -> None:
    """The form is made from the declarations, and only what is filled in is sent."""
    page.goto(server.url)
    page.fill("#prompt", QUESTION)
    page.locator("summary", has_text="Settings").click()
    names = {one.name for one in declared.declarations()} - {"method"}
    assert {one.get_attribute("name") for one in page.locator("details [name]").all()} == names
    page.get_by_label("Cadence", exact=True).select_option("block")
    page.get_by_label("Resampling", exact=True).select_option("systematic")
    page.locator("input[name=rounds]").fill("1")
    page.locator("input[name=temperature]").fill("0.9")
    with page.expect_request("**/v1/search") as asked:
        page.get_by_role("button", name="Search").click()
    finished(page)
    wanted = {"cadence": "block", "resampling": "systematic", "rounds": 1, "temperature": 0.9}
    assert asked.value.post_data_json == {"prompt": QUESTION, "method": "s3", **wanted}
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").click()
    download.value.save_as(tmp_path / "trace.jsonl")
    settings = read_trace(tmp_path / "trace.jsonl").header["settings"]
    assert {name: settings[name] for name in wanted} == wanted


def test_each_method_gets_only_the_settings_it_uses(page: Any, server: Live) -> None:
    page.goto(server.url)
    page.fill("#prompt", QUESTION)
    page.get_by_label("Method", exact=True).select_option("best")
    page.get_by_label("Compare with", exact=True).select_option("best_of_k")
    page.locator("summary", has_text="Settings").click()
    page.locator("input[name=lam]").fill("3")
    page.locator("input[name=seed]").fill("1")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    page.get_by_role("button", name="Search").click()
    finished(page, 2)
    bodies = [one.post_data_json for one in asked if one.url.endswith("/v1/search")]
    assert sorted(bodies, key=lambda body: len(body["method"])) == [
        {"prompt": QUESTION, "method": "best", "lam": 3, "seed": 1},
        {"prompt": QUESTION, "method": "best_of_k", "seed": 1},
    ]
    assert page.locator(".failure:visible").count() == 0
    page.get_by_label("Method", exact=True).select_option("baseline")
    assert page.locator("input[name=lam]").is_disabled()


def test_the_form_gets_the_same_answer_as_python(page: Any) -> None:
    """The other ways in are compared in tests/test_same_answer.py."""
    question = "Target: 15 Numbers: 10, 1, 6"
    model = s3dlm.load("tiny")
    expected = s3dlm.generate(model, question, task="countdown", method="best")
    with serving(model, defaults={}) as live:
        ask(page, live, question, Task="countdown", Method="best")
        finished(page)
        assert expected.text in page.locator(".panel").first.inner_text()


def test_a_text_with_holes_is_filled_and_shown_with_what_was_known(page: Any, server: Live) -> None:
    page.goto(server.url)
    page.locator("summary", has_text="Settings").click()
    page.get_by_label("Answer with holes").fill("6 * 4 = [[2]]. <answer>[[4-6]]</answer>")
    with page.expect_request("**/v1/search") as asked:
        page.get_by_role("button", name="Search").click()  # the prompt may be empty
    finished(page)
    body = {"prompt": "", "infill": "6 * 4 = [[2]]. <answer>[[4-6]]</answer>", "method": "s3"}
    assert asked.value.post_data_json == body
    assert re.fullmatch(
        r"6 \* 4 = ..\. <answer>.{4,6}</answer>", page.locator(".final").inner_text()
    )
    page.keyboard.press("Home")
    row = page.locator(".particle").first
    known = row.get_by_title("known from the start").count()
    assert known == len("6 * 4 = . <answer></answer>")
    assert (
        row.locator(".t").count() - known + masked(page) == 2 + 4
    )  # the shortest holes come first
    page.locator(".example").first.click()  # asks for a whole answer
    assert page.get_by_label("Answer with holes").input_value() == ""
