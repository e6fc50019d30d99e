import math

import pytest

from s3dlm.errors import S3dlmError, SettingsError, VerifierError
from s3dlm.verifier import (
    PARTS,
    VERIFIERS,
    Score,
    Verifier,
    _named,
    as_verifier,
    compose,
    for_task,
    from_toml,
)
from s3dlm.verifier.weights import PAPER

PAPER_TABLE = {
    "gsm8k": (0.20, 0.25, 0.25, 0.10, 0.20, 0.00),
    "math500": (0.25, 0.20, 0.25, 0.10, 0.20, 0.00),
    "arc": (0.20, 0.00, 0.00, 0.15, 0.20, 0.45),
    "truthfulqa": (0.20, 0.00, 0.00, 0.15, 0.20, 0.45),
    "countdown": (0.15, 0.10, 0.10, 0.10, 0.15, 0.40),
    "sudoku": (0.05, 0.00, 0.00, 0.05, 0.10, 0.80),
    "aime": (0.25, 0.20, 0.25, 0.10, 0.20, 0.00),
    "arithmetic": (0.20, 0.25, 0.25, 0.10, 0.20, 0.00),
    "choice": (0.20, 0.00, 0.00, 0.15, 0.20, 0.45),
    "truthfulqa_mc": (0.20, 0.00, 0.00, 0.15, 0.20, 0.45),
    "general": (0.00, 0.00, 0.00, 0.50, 0.50, 0.00),
}


@pytest.mark.parametrize("task", PAPER_TABLE)
def test_the_weights_are_the_papers(task):
    assert for_task(task).weights == dict(zip(PARTS, PAPER_TABLE[task], strict=True))


@pytest.mark.parametrize("task", PAPER)
def test_every_row_of_weights_sums_to_one_and_reports_all_six_parts(task):
    verifier = for_task(task)
    assert isinstance(verifier, Verifier)
    score = verifier.score("Numbers: [1, 2]\nTarget: 3", r"First 1 + 2 = 3. \boxed{1 + 2}", 0.8)
    assert tuple(score.parts) == PARTS
    assert score.total == pytest.approx(
        sum(verifier.weights[name] * value for name, value in score.parts.items())
    )
    assert math.fsum(verifier.weights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["18 eggs", "", "so 1 + 1 = 3"])
def test_end_tokens_do_not_change_a_score(text):
    verifier = for_task("gsm8k")
    run = "<|eot_id|><|endoftext|>\n<|endoftext|>"
    assert verifier.score("q", text + run) == verifier.score("q", text)


@pytest.mark.parametrize(
    "weights",
    [
        {"structure": 0.5},
        {"structure": 0.7, "arithmetic": 0.7},
        {"structure": 1.5, "arithmetic": -0.5},
        {"structure": float("nan")},
        {"structure": True},
        {"structure": "1"},
        {"beauty": 1.0},
        {},
    ],
)
def test_weights_that_are_no_weights_are_refused(weights):
    with pytest.raises(SettingsError):
        compose(weights)


def test_a_composite_of_parts_of_ones_own():
    verifier = compose(
        {"non_degeneracy": 0.5, "short": 0.25, "paper": 0.25},
        judges={"short": lambda p, t, c: 1 - len(t) / 100, "paper": for_task("gsm8k")},
    )
    text = "one two three four five six seven eight"
    score = verifier.score("q", text)
    paper = for_task("gsm8k").score("q", text).total
    assert score.parts["short"] == pytest.approx(1 - len(text) / 100)
    assert score.total == pytest.approx(0.5 + 0.25 * (1 - len(text) / 100) + 0.25 * paper)


@pytest.mark.parametrize("setting", [{"form": "prose"}, {"constraint": "chess"}])
def test_unknown_forms_and_constraints_name_the_known_ones(setting):
    with pytest.raises(SettingsError, match="choose one of"):
        compose({"structure": 1.0}, **setting)


def test_a_toml_file_gives_the_weights(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("constraint = 'sudoku'\n[weights]\nconstraint = 0.9\nconfidence = 0.1\n")
    for verifier in (for_task("countdown", str(path)), as_verifier(str(path))):
        assert verifier.weights["constraint"] == 0.9
        grid = "<answer>1234341221434321</answer>"
        assert verifier.score("Sudoku: 1000341221434321", grid, 0.5).total == pytest.approx(0.95)


def test_a_toml_file_without_form_takes_the_tasks_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[weights]\nconstraint = 1\n")
    verifier = for_task("countdown", str(path))
    assert verifier.score("Numbers: [1, 2]\nTarget: 3", r"\boxed{1 + 2}").total == pytest.approx(1)


def test_a_toml_file_without_weights_takes_the_tasks_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("constraint = 'countdown'\n")
    verifier = from_toml(path, "sudoku")
    assert verifier.weights == for_task("sudoku").weights
    score = verifier.score("Numbers: [1, 2]\nTarget: 3", r"\boxed{1 + 2}")
    assert score.parts["constraint"] == 1
    with pytest.raises(SettingsError, match=r"no \[weights\] table; add one"):
        from_toml(path)


def test_a_toml_file_for_an_unknown_task_names_the_known_ones(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[weights]\nconfidence = 1\n")
    with pytest.raises(SettingsError, match=r"task='gsm8' is unknown.*did you mean 'gsm8k'"):
        from_toml(path, "gsm8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[weights]\nstructure = 0.4\n", "add up to"),
        ("[weights]\nbeauty = 1.0\n", "beauty"),
        ("colour = 1\n[weights]\nstructure = 1\n", "colour"),
        ("weights = 1\n", r"no \[weights\] table"),
        ("not toml", "TOML"),
    ],
)
def test_a_bad_toml_file_says_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=message):
        for_task("gsm8k", str(path))


def test_a_missing_toml_file_is_a_settings_error(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        for_task("gsm8k", str(tmp_path / "none.toml"))


def test_unknown_names_are_settings_errors_with_a_hint():
    with pytest.raises(SettingsError, match="did you mean 'gsm8k'"):
        for_task("gsm8")
    with pytest.raises(SettingsError, match="verifier='papr'"):
        for_task("gsm8k", "papr")
    with pytest.raises(SettingsError, match="verifier='nobody'"):
        as_verifier("nobody")
    with pytest.raises(SettingsError, match=r"not a verifier.*`score` returns a Score"):
        as_verifier(3)  # type: ignore[arg-type]


def test_a_function_is_a_verifier():
    verifier = as_verifier(lambda prompt, text, confidence: len(text) / 10 + (confidence or 0))
    assert verifier.score("q", "12345", 0.25) == Score(0.75, {"custom": 0.75})


@pytest.mark.parametrize("value", [None, "high", float("nan"), float("inf"), [1]])
def test_a_function_that_returns_no_score_is_an_error(value):
    with pytest.raises(VerifierError, match="finite number"):
        as_verifier(lambda p, t, c: value).score("q", "text")


def test_a_verifier_stays_itself_and_a_task_names_its_own():
    verifier = for_task("gsm8k")
    assert as_verifier(verifier) is verifier
    assert as_verifier("gsm8k") is verifier


class Entry:
    name, value, group = "theirs", "package:judge", "s3dlm.verifiers"

    def __init__(self, found):
        self.found = found

    def load(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def install(monkeypatch, found):
    monkeypatch.setattr("s3dlm.inputs.find_entry_points", lambda group: {"theirs": Entry(found)})
    monkeypatch.setattr(VERIFIERS, "_known", {})
    _named.cache_clear()


def test_an_entry_point_is_a_verifier(monkeypatch):
    install(monkeypatch, lambda prompt, text, confidence: 0.25)
    assert as_verifier("theirs").score("q", "text").total == 0.25


class NeedsAPath:
    def __init__(self, path):
        self.path = path


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ImportError("No module named 'torch'"), "does not load: ImportError: No module.*package"),
        (NeedsAPath, "cannot be built: TypeError: .*'path'; .* needs no arguments"),
    ],
)
def test_an_entry_point_that_fails_is_named(monkeypatch, found, words):
    install(monkeypatch, found)
    with pytest.raises(S3dlmError, match=rf"'theirs' .*{words}"):
        as_verifier("theirs")
