"""`s3dlm reproduce` from end to end, on a random checkpoint that has LLaDA's shape but not its size."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s3dlm import tasks
from s3dlm.cli.main import app
from s3dlm.errors import RecordError
from s3dlm.evaluation import manifest, paper, records

BENCHMARKS = ("gsm8k", "math500", "arc", "truthfulqa", "aime")
PARAMETERS = 29_280  # of the checkpoint
SUM = {"question": "What is 2 + 3?", "problem": "Compute $2 + 3$.", "answer": "5 #### 5"}
ICE = {"Question": "Is ice hot?", "Best Answer": "No", "Correct Answers": "No",
       "Incorrect Answers": "Yes; Often; At night"}  # fmt: skip
MADE_UP = {  # the fields of the published files, nothing of their content
    "gsm8k": SUM, "math500": SUM | {"answer": "5"}, "aime": SUM | {"answer": "5"}, "truthfulqa": ICE,
    "arc": {
        "question": "What is hot?", "answerKey": "2",
        "choices": {"text": ["ice", "fire"], "label": ["1", "2"]},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many made-up questions as were published."""
    folder = tmp_path_factory.mktemp("published")
    for name in BENCHMARKS:
        source = tasks.get(name).source
        assert source is not None
        file, rows = source.files[0], [MADE_UP[name]] * (source.count or 0)
        with (folder / file).open("w", encoding="utf-8", newline="") as out:
            if file.endswith(".csv"):
                writer = csv.DictWriter(out, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            else:
                out.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def reproduce(*words: str) -> str:
    done = CliRunner().invoke(app, ["reproduce", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("undrawn")
def test_every_part_runs_on_every_benchmark(
    data: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "PARTICLES", (1, 2))
    monkeypatch.setattr(paper, "BRANCHING", (1, 2))
    out = tmp_path / "run"
    words = ["--model", f"{checkpoint}/", "--data", str(data), "--out", str(out), "--limit", "1"]
    small = ["--set", "gen_length=8", "--set", "steps=2", "--set", "block_length=4"]
    small += ["--set", "particles=2", "--set", "temperature=0.8"]
    words += ["--size", "full", "--seeds", "2", "--workers", "1"]
    reproduce(*words, *small, "--sweep-problems", "1")
    conditions, found = manifest.read(out).conditions, records.read(out)
    assert {c.task for c in conditions} == set(BENCHMARKS)
    assert {c.settings.decoding.temperature for c in conditions} == {0.0, 0.8}
    greedy = {c.spec for c in conditions if c.label == "greedy"}
    assert {record.seed for record in found if record.spec in greedy} == {0}  # it never differs
    assert "s3_paper" not in {c.label for c in conditions}  # it would be s3 once more
    text = (out / "report.md").read_text()
    for title in ("Tables 1 and 2", "Tables 4 and 5", "Figure 1)", "Figure 3", "Figure 4", "5)",
                  "| s3_verified | verified_best_of_k |", "Over particles"):  # fmt: skip
        assert title in text
    assert "precision float32" in text
    assert "paper's accuracy" not in text  # another model, other settings


@pytest.mark.usefixtures("undrawn")
def test_the_papers_numbers_stand_beside_those_of_a_renamed_folder(
    data: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["--model", str(checkpoint), "--data", str(data), "--size", "hour", "--task", "gsm8k"]
    words += ["--limit", "1", "--out", str(out), "--workers", "1", "--traces", "0"]
    monkeypatch.setattr(paper, "PARAMETERS", PARAMETERS)
    said = json.loads(reproduce(*words, "--json").partition("\n{")[2].join(("{", "")))
    assert manifest.read(out).machine["parameters"] == PARAMETERS
    (table,) = [each for each in said["tables"] if each["title"] == "Beside the paper's accuracy"]
    rows = {row[1]: row for row in table["rows"]}
    assert set(rows) == {"greedy", "best_of_k", "s3"}
    assert [rows[label][4] for label in rows] == ["68.16", "69.56", "70.21"]
    assert rows["s3"][2] == "1 × 1"
    assert {row[-1] for row in table["rows"]} <= {"no", "too few problems"}


def test_without_the_hub_the_answer_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that reads data sets asks again and again; it is told that there is no network."""
    datasets = pytest.importorskip("datasets")
    import huggingface_hub

    offline = []

    def unreachable(*_: object, **__: object) -> None:
        raise RuntimeError("no route to host")

    def load(*_: object, **__: object) -> None:
        offline.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("not cached")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(RecordError, match=r"not cached; go online, or put gsm8k_test\.jsonl"):
        tasks.load(tasks.get("gsm8k"))
    assert offline == [True]
    assert datasets.config.HF_HUB_OFFLINE is False
