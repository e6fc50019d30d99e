"""lm-evaluation-harness runs our searches: through its API, and through its own command line."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from s3dlm import engine, tasks
from s3dlm.answers.grading import grade
from s3dlm.errors import SettingsError
from tests.fakes import fake_model

pytest.importorskip("lm_eval")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the harness and its packages have habits of their own
    from s3dlm.extras.lm_eval.model import KNOWN_TASKS, TASK_FILES, S3dlmLM, _limited, _until

pytestmark = [  # what the harness's own packages leave behind
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ROOT = Path(__file__).parents[3]
SMALL = {"method": "s3", "particles": 2, "branching": 2, "gen_length": 64, "steps": 4}
TEXTS = (
    "16 + 4 = 20. Therefore the answer is A. <answer>A</answer>",
    "9 + 12 = 21. Therefore the answer is B. <answer>B</answer>",
)


def load(*_: object, **__: object) -> Any:
    """The fake model, whatever is asked for."""
    return fake_model(TEXTS, context=2048)


@pytest.fixture(scope="module")
def lm() -> S3dlmLM:
    return S3dlmLM(load(), **SMALL)


def request(context: str, task: str = "s3dlm_choice", **wishes: Any) -> Any:
    return SimpleNamespace(
        args=(context, {"until": [], **wishes}), task_name=task, doc={"question": context}
    )


def test_texts_are_those_of_the_engine_whatever_they_are_batched_with(lm: S3dlmLM) -> None:
    questions = [f"Which is {n}?\nA. {n}\nB. {n + 1}" for n in range(3)]
    contexts = [lm.apply_chat_template([{"role": "user", "content": q}]) for q in questions]
    together = lm.generate_until([request(c) for c in contexts], disable_tqdm=True)
    alone = [lm.generate_until([request(c)])[0] for c in contexts]
    assert together == alone
    by_engine = [
        engine.generate(lm.model, q, task="choice", settings=lm.settings).text for q in questions
    ]
    assert together == by_engine


def test_repeats_are_new_samples_and_each_item_is_cached(lm: S3dlmLM) -> None:
    kept: list[Any] = []
    hook = SimpleNamespace(add_partial=lambda *row: kept.append(row))
    other = S3dlmLM(load(), method="baseline", temperature=1.5, gen_length=64, steps=4)
    other.set_cache_hook(hook)
    found = other.generate_until([request("Which?\nA. 1\nB. 2\n")] * 6, disable_tqdm=True)
    assert len(set(found)) > 1
    assert [(row[0], row[2]) for row in kept] == [("generate_until", text) for text in found]


@pytest.mark.parametrize(
    ("stops", "left"),
    [([], "a b. c"), (["."], "a b"), ("b", "a "), (["z", ""], "a b. c"), (["c", "."], "a b")],
)
def test_stop_strings(stops: Any, left: str) -> None:
    assert _until("a b. c", stops) == left


def test_a_limit_on_tokens_shortens_the_canvas_at_the_same_pace(lm: S3dlmLM) -> None:
    paper = lm.settings.replace(gen_length=128, steps=64, block_length=64)
    short = _limited(paper, {"max_gen_toks": 32})
    how = short.decoding
    assert (how.gen_length, how.steps, how.block_length) == (32, 16, 32)
    assert _limited(paper, {"max_new_tokens": 500}) == paper
    assert _limited(paper, {"temperature": 0.0, "do_sample": False}) == paper


def test_the_verifier_sees_the_question_without_the_examples(lm: S3dlmLM) -> None:
    context = "Target: 9 Numbers: 4, 5\n4 + 5\n\nTarget: 24 Numbers: 6, 4, 12\n"
    asked = SimpleNamespace(
        args=(context, {}), task_name="s3dlm_countdown",
        doc={"question": "Target: 24 Numbers: 6, 4, 12"},
    )  # fmt: skip
    (job,) = lm._jobs([asked])
    right, wrong = "<answer>(12 - 6) * 4</answer>", "<answer>4 + 5</answer>"
    assert job.verifier.score(context, right).total > job.verifier.score(context, wrong).total


def test_a_verifier_of_ones_own_is_a_file_and_unknown_arguments_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def half(prompt, text, confidence):\n    return 0.5\n")
    other = S3dlmLM(load(), method="s3", verifier=f"{file}:half")
    (job,) = other._jobs([SimpleNamespace(args=("q", {}), task_name="", doc={})])
    assert job.verifier.score("q", "x").total == 0.5
    with pytest.raises(SettingsError, match=r"'particels' is unknown.*'particles'"):
        S3dlmLM(load(), particels=4)


def test_likelihoods_prefer_what_the_model_writes(lm: S3dlmLM) -> None:
    def asked(continuation: str) -> Any:
        return SimpleNamespace(args=("Which?\n16", continuation))

    (good, _), (bad, greedy) = lm.loglikelihood([asked(" + 4"), asked(" zzz")], True)
    assert bad < good < 0
    assert greedy is False


def test_a_long_text_is_read_in_windows_that_leave_nothing_out(
    lm: S3dlmLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm, "_likelihood", lambda context, ids: -float(len(ids)))
    long = "x" * (2 * lm.max_length + 7)
    assert lm.loglikelihood_rolling([SimpleNamespace(args=(long,))]) == [-float(len(long))]


def run_here(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """`python -m s3dlm.extras.lm_eval`, in this process."""
    import lm_eval.tasks

    monkeypatch.setattr(sys, "argv", ["lm_eval", *arguments])
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", lm_eval.tasks.TaskManager)  # put back later
    # Describing the machine means a list of all packages, which takes longer than the run.
    monkeypatch.setattr("torch.utils.collect_env.get_pretty_env_info", lambda: "a machine")
    runpy.run_module("s3dlm.extras.lm_eval", run_name="__main__")


def test_the_command_of_the_page_leaves_tables_graded_samples_and_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^python -m s3dlm\.extras\.lm_eval (.*)$", page, re.MULTILINE)
    kept = ["--use_cache", str(tmp_path / "cache"), "--output_path", "out", "--log_samples"]
    run_here(monkeypatch, [*shlex.split(line), *kept])
    printed = capsys.readouterr().out
    (path,) = tmp_path.rglob("results_*.json")
    for task in ("s3dlm_countdown", "s3dlm_choice_letters"):
        assert f"|{task}" in printed
        assert 0.0 <= json.loads(path.read_text())["results"][task]["acc,none"] <= 1.0
    (texts,) = tmp_path.rglob("samples_s3dlm_countdown_2*.jsonl")
    rows = [json.loads(line) for line in texts.read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        (text,), doc = row["resps"][0], row["doc"]
        gold = json.loads(doc["gold"])
        assert row["acc"] == grade("countdown", text, gold, "fixed", doc["question"])
    assert list(tmp_path.glob("cache*.db"))


def test_every_shipped_task_names_one_of_ours() -> None:
    import yaml

    class Loader(yaml.SafeLoader):
        """Functions stay names."""

    Loader.add_constructor("!function", lambda loader, node: node.value)
    files = sorted(TASK_FILES.glob("*.yaml"))
    assert {"arithmetic", "countdown", "sudoku", "choice", "truthfulqa"} <= {
        file.stem.removeprefix("s3dlm_") for file in files
    }
    assert {tasks.get(name).name for name in KNOWN_TASKS.values()} == {*KNOWN_TASKS.values()}
    for file in files:
        config = yaml.load(file.read_text(), Loader)
        assert config["task"] == file.stem
        assert tasks.get(config["dataset_kwargs"]["problems"])


def test_without_the_harness_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lm_eval", "lm_eval.api.model"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "s3dlm.extras.lm_eval.model")
    with pytest.raises(SystemExit) as end:
        runpy.run_module("s3dlm.extras.lm_eval", run_name="__main__")
    said = "s3dlm: lm-eval is not installed; run: pip install 's3dlm[eval]'\n"
    assert (end.value.code, capsys.readouterr().err) == (2, said)
