"""Text with holes: how it is written, what the process keeps, and that every part of the search works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import s3dlm
from s3dlm.diffusion.blocks import Blocks, Reveal, hole_reveals
from s3dlm.diffusion.infill import Template
from s3dlm.engine import Job
from s3dlm.job import prepare
from s3dlm.search.methods import METHODS
from s3dlm.search.remask import REMASKINGS
from s3dlm.settings import Settings
from s3dlm.trace import read_trace, write_trace
from tests.fakes import COUNTDOWN, END, MASK, QUESTION, Judge, events_of, fake_model
from tests.fakes import small as usual

TEXT = "12 - 6 = [[1]]. 6 * 4 = [[2]]. <answer>[[12]]</answer>"
SMALL = {"gen_length": 64, "steps": 16, "block_length": 32, "temperature": 1.0}


def small(method: str, **options: Any) -> Settings:
    return usual(method, SMALL, **options)


def fill(
    text: str = TEXT, method: str = "s3", model: Any = None, verifier: Any = None, **options: Any
) -> s3dlm.Result:
    how: dict[str, Any] = {"task": "countdown", "settings": small(method, **options)}
    return s3dlm.infill(model or fake_model(), text, prompt=QUESTION, verifier=verifier, **how)


def rebuilt(text: str, holes: Sequence[str]) -> str:
    """The whole text, from the known parts of its template."""
    known = Template.parse(text).known
    return known[0] + "".join(hole + after for hole, after in zip(holes, known[1:], strict=True))


# How a text with holes is written


@pytest.mark.parametrize(
    ("text", "known", "lengths"),
    [
        ("a [[3]] b[[ 4 ]][[1]]", ("a ", " b", "", ""), (3, 4, 1)),
        (
            r"x = \[[1, 2], [3]] and a[b[0]] [[2]] c:\\[[1]] \n",
            ("x = [[1, 2], [3]] and a[b[0]] ", " c:\\", r" \n"),
            (2, 1),
        ),
    ],
    ids=["holes", "brackets that are meant"],
)
def test_a_template_is_known_texts_and_lengths(
    text: str, known: tuple[str, ...], lengths: tuple[int, ...]
) -> None:
    assert Template.parse(text) == Template(known, lengths)


@pytest.mark.parametrize("slashes", range(6))
def test_two_backslashes_before_brackets_stand_for_one(slashes: int) -> None:
    """With one left over the brackets are characters, else a hole."""
    known = Template.parse("a" + "\\" * slashes + "[[1]][[2]]").known
    kept = "a" + "\\" * (slashes // 2)
    assert known == ((kept + "[[1]]", "") if slashes % 2 else (kept, "", ""))


# The process


def process_of(text: str = TEXT, **options: Any) -> Any:
    job = Job(QUESTION, "countdown", small("s3", **options), infill=text)
    return prepare(fake_model(), job).process


def test_what_is_known_stays_and_what_fills_the_holes_alone_counts() -> None:
    process = process_of("ab[[2]]c")
    start = process.start(1, np.random.default_rng(0))
    assert start.tokens.tolist() == [[97, 98, MASK, MASK, 99]]
    full = np.array([97, 98, END, 121, 99])  # an end token in it does not end it
    assert process.reader.length(full) == 5
    assert process.sampling.suppressed == (END,)
    assert process.reader.remaskable(full, ())[0].tolist() == [False, False, True, True, False]
    filled = replace(start, tokens=full[None], logp=np.array([[0, 0, -1, -3, 0.0]]))
    assert process.reader.nll(filled).tolist() == [2.0]


def test_the_schedule_fills_the_holes_at_the_settings_pace() -> None:
    masked = np.zeros(40, dtype=bool)
    masked[[0, 20, 21, 22, 39]] = True
    schedule = hole_reveals(masked, Blocks(16), 2)
    wanted = [(0, 16, 1), (16, 32, 2), (16, 32, 1), (32, 40, 1)]
    assert schedule == [Reveal(*each) for each in wanted]
    assert process_of("a[[10]]b").steps == 3  # 64 tokens in 16 steps: 4 per step


# Every part of the search


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"reveal": "threshold", "reveal_threshold": 0.5}])
def test_every_method_keeps_the_known_text(method: str, options: dict[str, Any]) -> None:
    settings = Settings.over(method, [{**SMALL, **options}], {})
    *steps, result = events_of(
        fake_model(), QUESTION, infill=TEXT, task="countdown", settings=settings
    )
    given = process_of().reader.given
    for step in steps:
        for canvas in (*step.tokens, *step.clean):
            assert (canvas == given)[given != MASK].all()
    assert rebuilt(TEXT, result.holes) == result.text
    assert [len(hole) for hole in result.holes] == [1, 2, 12]
    assert all(rebuilt(TEXT, [""] * 3)[:9] == one.text[:9] for one in result.survivors)


@pytest.mark.parametrize("remask", REMASKINGS)
def test_rounds_and_budgets_keep_the_known_text(remask: str) -> None:
    result = fill(method="revise", budget=60, remask=remask, stop_when="never")
    assert rebuilt(TEXT, result.holes) == result.text
    assert result.nfe <= 60


def test_known_text_leads_to_the_text_it_belongs_to() -> None:
    result = fill(TEXT, "baseline", fake_model(COUNTDOWN[:2], noise=0.0), temperature=0.0)
    assert result.text == COUNTDOWN[1]
    assert result.holes == ("6", "24", "(12 - 6) * 4")


def test_the_verifier_sees_the_whole_text() -> None:
    judge = Judge()
    fill(verifier=judge)
    assert all(text[:9] == "12 - 6 = " and text[-9:] == "</answer>" for text in judge.seen)
    assert len(judge.seen) > 1


def test_a_text_may_stand_alone() -> None:
    result = s3dlm.infill(fake_model(), "ab[[3]]\n[[2]]cd", method="best_of_k", **SMALL)
    assert result.text.startswith("ab")
    assert result.text.endswith("cd")
    assert (result.prompt, len(result.holes)) == ("", 2)


def test_the_same_text_gets_the_same_answer_and_another_its_own_random_numbers() -> None:
    # Under a model that prefers nothing, texts differ by their random numbers alone.
    model = fake_model((), noise=0.0)
    one = fill("[[8]]a", "baseline", model).holes
    assert one == fill("[[8]]a", "baseline", model).holes != fill("[[8]]b", "baseline", model).holes


# What observers see


def test_a_trace_tells_what_was_given(tmp_path: Path) -> None:
    model, settings, path = fake_model(), small("s3"), tmp_path / "trace.jsonl"
    text = "a[[3]]b"
    events = events_of(model, QUESTION, infill=text, task="countdown", settings=settings)
    *_, result = write_trace(
        path, model, events, question=QUESTION, task="countdown", settings=settings, infill=text
    )
    trace = read_trace(path)
    assert trace.header["infill"] == text
    assert trace.header["given"] == [[97, -1, -1, -1, 98]]
    assert trace.events[-1].holes == result.holes  # type: ignore[union-attr]
