"""What CONTRIBUTING.md says that a change costs: each is made in a package of somebody else, and runs."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm import inputs, tasks, verifier
from s3dlm.answers import KINDS, extract, grading
from s3dlm.errors import SettingsError
from s3dlm.inputs import Registry
from s3dlm.models.registry import MODEL_TYPES
from s3dlm.search import expand, method, remask, resample, select
from s3dlm.settings import Settings

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(fence[1], fence[2]) for fence in FENCE.finditer(PAGE)]
FILES = {text.split()[1]: text for kind, text in BLOCKS if text.startswith("# mine/")}
REGISTRIES: dict[str, Registry[Any]] = {
    "a method": method.METHODS,
    "a verifier": verifier.VERIFIERS,
    "a resampler": resample.RESAMPLERS,
    "a selection": select.SELECTIONS,
    "a way to sample children": expand.CHILD_SAMPLINGS,
    "a rule of what is re-masked": remask.REMASKINGS,
    "a task": tasks.TASKS,
    "a kind of answer": KINDS,
    "a grader": grading.GRADERS,
    "a network": MODEL_TYPES,
}
SMALL = {"particles": 4, "branching": 2, "gen_length": 64, "steps": 8, "temperature": 1.0}
QUESTION = "Target: 15 Numbers: 10, 1, 6"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files as an installed package `mine`."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (groups,) = (tomllib.loads(text) for kind, text in BLOCKS if kind == "toml")
    offered = groups["project"]["entry-points"].items()
    lines = [
        f"[{group}]\n" + "\n".join(f"{n} = {p}" for n, p in some.items()) for group, some in offered
    ]
    installed = tmp_path / "mine-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("\n\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_known", dict(registry._known))
    inputs.find_entry_points.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
    inputs.find_entry_points.cache_clear()
    verifier.names._named.cache_clear()


def test_a_method_a_resampler_a_verifier_and_a_selection_are_one_file_each(package: Path) -> None:
    settings = {**SMALL, "verifier": "brief", "resampling": "heaviest", "selection": "shortest"}
    result = s3dlm.generate("tiny", QUESTION, method="root", **settings)
    assert len({one.text for one in result.survivors}) == 1
    score = result.survivors[0].score
    assert score == pytest.approx(1 / (1 + len(result.text) / 100))
    assert len(FILES) == 5


def test_a_task_with_a_new_kind_of_answer_is_one_file(package: Path) -> None:
    task = tasks.get("yesno")
    assert task.render("Is it?", "d1").user == "Answer yes or no.\n\nIs it?"
    assert extract(task.answer, "No. But then: YES!") == "YES"
    assert [grading.grade(task.answer, text, "yes") for text in ("YES", "yes, no")] == [1.0, 0.0]


def test_a_regular_expression_as_answer_needs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text(json.dumps({"question": QUESTION, "gold": "15"}))
    text = s3dlm.generate("tiny", QUESTION, method="greedy").text
    pattern = "regex:= ([0-9]+)"
    assert extract(pattern, text) == "15"
    found = s3dlm.evaluate("tiny", f"{file}:countdown:{pattern}", "greedy", out=tmp_path / "run")
    (graded,) = (methods["greedy"] for methods in found.values())
    assert graded.problems == 1
    with pytest.raises(SettingsError, match="is no regular expression"):
        extract("regex:(", text)


def test_checkpoints_of_another_network_are_one_file(package: Path) -> None:
    (package / "config.json").write_text(json.dumps({"model_type": "uniform"}))
    model = s3dlm.load(str(package))
    short = {"gen_length": 16, "steps": 8, "block_length": 16}
    assert s3dlm.generate(model, "Hello", method="baseline", **short).nfe > 0


def test_a_task_of_lm_eval_is_fifteen_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval")
    import lm_eval
    from lm_eval.tasks import TaskManager

    from s3dlm.extras.lm_eval.model import S3dlmLM

    (recipe,) = (text for kind, text in BLOCKS if kind == "yaml")
    assert len(recipe.splitlines()) == 15
    rows = [{"question": QUESTION, "gold": gold} for gold in ("yes", "no")]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "yesno.yaml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    found = lm_eval.simple_evaluate(
        S3dlmLM("tiny", method="greedy"), tasks=["yesno"], bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
    )  # fmt: skip
    assert 0 <= found["results"]["yesno"]["exact_match,last"] <= 1


@pytest.mark.parametrize("what", REGISTRIES)
def test_a_registry_lists_what_it_finds_and_only_the_command_line_names_files(what: str) -> None:
    registry = REGISTRIES[what]
    assert registry.group.startswith("s3dlm.")
    assert all(registry.find(name) is not None for name in registry)
    with pytest.raises(SettingsError, match="is unknown"):
        registry.find("nobody")
    assert ("mine.py:thing" in registry) == (what == "a method")


def test_no_setting_has_a_file_run(tmp_path: Path) -> None:
    """A request may hold any value of a setting."""
    file = tmp_path / "evil.py"
    file.write_text("raise SystemExit('it ran')")
    for name in ("remask", "selection"):
        with pytest.raises(SettingsError, match="is unknown"):
            Settings("revise", **{name: f"{file}:rule"})
