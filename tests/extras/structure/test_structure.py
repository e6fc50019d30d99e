"""Answers that follow a grammar, whatever the model, the method and the seed."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from benchmarks.structure.triples import QUESTION, failures, models, run, triples
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

import s3dlm
from s3dlm.cli.main import main
from s3dlm.diffusion.grammar import Grammar
from s3dlm.errors import SettingsError
from s3dlm.job import Job
from s3dlm.search.methods import METHODS
from s3dlm.settings import has


@pytest.fixture(scope="module")
def tiny() -> s3dlm.Model:
    return s3dlm.load("tiny")


@pytest.mark.parametrize("number", range(len(models())), ids=lambda n: models()[n].name)
def test_every_answer_is_valid(number: int) -> None:
    """Of a trained model and of random ones, bidirectional and block-causal, by all methods."""
    model = models()[number]
    asked = triples(model, range(number * 100, number * 100 + 55))
    assert len(asked) >= 50
    assert failures(model, asked) == []


def test_the_only_way_to_the_end_may_be_left_for_a_moment(tiny: s3dlm.Model) -> None:
    assert failures(tiny, triples(tiny, range(20_085, 20_086))) == []


@pytest.mark.slow
def test_a_thousand_answers_are_valid() -> None:
    assert run(1000, first=10_000) == 0


PAIR = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"enum": [1, 22]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Person(BaseModel):
    name: str = Field(max_length=8)
    pet: Cat | None = None


def test_grammars_of_one_text_are_one_whoever_reads_the_value() -> None:
    both = {Grammar("json", "{}", read=str), Grammar("json", "{}", read=len)}
    assert len(both) == 1 < len(both | {Grammar("regex", "{}")})


def test_values_come_back_parsed(tiny: s3dlm.Model) -> None:
    found = s3dlm.generate(tiny, QUESTION, grammar=Person, gen_length=48, method="greedy")
    assert isinstance(found.parsed, Person)
    listed = s3dlm.generate(tiny, QUESTION, grammar=list[bool], gen_length=24, method="greedy")
    assert isinstance(listed.parsed, list)
    plain = s3dlm.generate(tiny, QUESTION, grammar={"type": "null"}, method="greedy")
    assert (plain.text, plain.parsed) == ("null", None)


class Colours(TypedDict):
    red: bool


@dataclass
class Light:
    on: bool


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    on: bool


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(Person, ["name", "pet"]), (Colours, ["red"]), (Light, ["on"]), (Light | None, ["on"])],
    ids=["class", "TypedDict", "dataclass", "union"],
)
def test_an_object_of_a_class_has_its_fields_and_no_others(
    tiny: s3dlm.Model, kind: Any, fields: list[str]
) -> None:
    found = s3dlm.generate(tiny, QUESTION, grammar=kind, gen_length=48, method="greedy")
    assert (json.loads(found.text) or {}).keys() <= set(fields)
    expected = (Person, dict, Light, type(None))
    assert isinstance(found.parsed, expected)


def test_a_class_may_allow_other_fields(tiny: s3dlm.Model) -> None:
    found = s3dlm.generate(tiny, QUESTION, grammar=Open, gen_length=48, method="greedy")
    assert json.loads(found.text).keys() > {"on"}


@pytest.mark.parametrize(
    ("grammar", "expression"),
    [
        (re.compile("(?s)[a-c]{2}.[^a]b", re.IGNORECASE), "(?is)[a-c]{2}.[^a]b"),
        (re.compile("^a.b$", re.DOTALL), "(?s)a.b"),
        (re.compile(r"[0-9]{2,4} (apples|pears)"), r"[0-9]{2,4} (apples|pears)"),
        (["yes", "no", 'may"be'], 'yes|no|may"be'),
        ('start: "(" start ")" | "x"', r"\(*x\)*"),
    ],
    ids=str,
)
def test_other_grammars(tiny: s3dlm.Model, grammar: Any, expression: str) -> None:
    for method in ("greedy", "s3", "revise"):
        text = s3dlm.generate(tiny, QUESTION, grammar=grammar, method=method).text
        assert re.fullmatch(expression, text)


HARD_TO_END = (
    r"[A-Za-z ]+\n[0-9]+",
    r"[^!]*!",
    r".*\\boxed\{[0-9]+\}",
    r"[\w .]+ <answer>[0-9]+</answer>",
    r"([a-z]+#|[^a-z]{2,}Z)[A-Za-z0-9]+~",
    r"(?:ab|c)*\d{3}-\S",
)


@pytest.mark.parametrize("expression", HARD_TO_END)
def test_an_end_that_many_other_tokens_could_put_off_is_found(
    tiny: s3dlm.Model, expression: str
) -> None:
    """As a regular expression, as a part of JSON, and in a Lark grammar."""
    wanted = {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{expression}$"},
        "minItems": 2,
    }
    lark = 'start: "Say " /' + expression.replace("/", r"\/") + "/"
    decoding = {"method": "greedy", "gen_length": 40}
    found = s3dlm.generate(tiny, QUESTION, grammar=re.compile(expression), **decoding)
    assert re.fullmatch(expression, found.text)
    found = s3dlm.generate(tiny, QUESTION, grammar=wanted, **decoding)
    assert len(found.parsed) > 1
    assert all(re.fullmatch(expression, each) for each in found.parsed)
    found = s3dlm.generate(tiny, QUESTION, grammar=lark, **decoding)
    assert re.fullmatch(f"Say {expression}", found.text)


def test_the_end_stays_in_reach_of_a_model_that_never_ends(tiny: s3dlm.Model) -> None:
    """An integer without bounds fills the canvas and no more."""
    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    found = s3dlm.generate(tiny, QUESTION, grammar=wanted, gen_length=16, method="greedy")
    assert isinstance(found.parsed["n"], int)


def test_forced_tokens_take_no_pass(tiny: s3dlm.Model) -> None:
    wanted = {"type": "object", "properties": {"a_long_name": {"enum": ["left", "right"]}}, "required": ["a_long_name"], "additionalProperties": False}  # fmt: skip
    found = s3dlm.generate(tiny, QUESTION, grammar=wanted, gen_length=40, method="greedy")
    assert found.nfe <= 2
    assert len(found.token_ids) > 10


def test_what_the_model_does_not_choose_is_certain(tiny: s3dlm.Model) -> None:
    """Of "right" or "wrong" it chooses the first letter; no later round changes what the rest counts."""
    for rounds in (0, 2):
        grammar = re.compile("The answer is (right|wrong), I think")
        options = {"rounds": rounds, "remask": "random", "restart_fraction": 0.0, "budget": 30}
        found = s3dlm.generate(
            tiny, QUESTION, grammar=grammar, method="revise", stop_when="never", **options
        )
        assert max(found.token_logprobs) == 0.0
        assert sum(logp < 0 for logp in found.token_logprobs) <= 2


def test_log_probabilities_are_those_of_what_is_allowed(tiny: s3dlm.Model) -> None:
    """Of two choices one is at least as likely as not; without the mask both would be unlikely."""
    found = s3dlm.generate(tiny, QUESTION, grammar=["q", "z"], method="greedy")
    assert np.exp(found.token_logprobs[0]) >= 0.5


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ({"type": "string", "minLength": 99}, "choose gen_length=10[0-9] or more"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "integer", "multipleOf": 999983}, "multipleOf"),
        ({"$ref": "#"}, "no end of the json grammar was found"),
        (re.compile("(?=a)"), "look-around"),
        (re.compile("((a{1000}){1000}){1000}"), "repeats a part more than"),
        (re.compile(r"\d", re.ASCII), r"instead of \\d"),
        (re.compile("a\n b # c", re.VERBOSE), "without blanks"),
        ("start: x", "unknown name"),
        ('start: /a+/ "a"', "never ends"),
        ('start: "x" | "b" /(ab|ab)+/ "ab"', "never ends"),
        ('start: %json {"type": "object"}', "directive %json"),
        ("x" * 30_000, "at most 20000"),
        (json.loads('{"items":' * 70 + "{}" + "}" * 70), "64 levels"),
        ([], "give one text or more"),
        (3, "is not a grammar"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_followed_is_refused(tiny: s3dlm.Model, grammar: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        s3dlm.generate(tiny, QUESTION, grammar=grammar, gen_length=48)


REFUSED = ("lookum", "order_token", "unmaskfork", "vgb")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_follows_a_grammar_or_refuses_it(tiny: s3dlm.Model, method: str) -> None:
    options: Any = {"grammar": PAIR, "method": method}
    if has(METHODS[method], "budget"):
        options["budget"] = 20
    if method in REFUSED:
        with pytest.raises(SettingsError, match=r"decides itself which tokens|draws whole texts"):
            s3dlm.generate(tiny, QUESTION, **options)
        return
    found = s3dlm.generate(tiny, QUESTION, **options)
    for text in (found.text, *(one.text for one in found.survivors)):
        Draft202012Validator(PAIR).validate(json.loads(text))


def test_the_page_names_the_methods_that_refuse_a_grammar() -> None:
    page = Path("docs/server.md").read_text(encoding="utf-8")
    listed = re.search(r"Every method but (.*?) can be used", page, re.DOTALL)
    assert listed is not None
    assert tuple(re.findall("`([a-z_]+)`", listed[1])) == REFUSED


def test_a_text_with_holes_and_a_model_of_uniform_noise_are_refused(tiny: s3dlm.Model) -> None:
    with pytest.raises(SettingsError, match="grammar and infill were both given"):
        Job(QUESTION, infill="a[[2]]", grammar=["a"])
    noisy = s3dlm.load("noisy9", device="cpu")
    with pytest.raises(SettingsError, match="choose a model of masked diffusion"):
        s3dlm.generate(noisy, "." * 81, grammar=["a"])


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("verified_best_of_k", {}),
        ("s3", {"lam": 50.0}),
        ("restarts", {"budget": 30}),
        ("revise", {"budget": 30}),
    ],
)
def test_among_valid_answers_the_verifier_decides_or_else_the_likelihood(
    tiny: s3dlm.Model, method: str, own: Any
) -> None:
    """Words of three letters; the model's own choice has no "e"."""
    grammar, general = re.compile("[a-z]{3}"), {"task": "none", "temperature": 1.0, "particles": 8}
    options: Any = {"grammar": grammar, "method": method, **general, **own}
    silent = s3dlm.generate(tiny, QUESTION, **options, verifier=lambda *_: 0.0)
    liked = s3dlm.generate(
        tiny, QUESTION, **options, verifier=lambda _, text, __: text.count("e") / 3
    )
    assert re.fullmatch("[a-z]{3}", silent.text)
    assert re.fullmatch("[a-z]{3}", liked.text)
    assert liked.text.count("e") > silent.text.count("e")
    if method != "revise":  # it ends with one survivor, and its answer may be an earlier draft
        assert silent.text == min(silent.survivors, key=lambda one: one.nll).text


def test_the_shell_reads_a_schema_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shell(*arguments: str) -> str:
        usual = ("--method", "greedy", "--gen-length", "24", "--quiet")
        monkeypatch.setattr(sys, "argv", ["s3dlm", "generate", QUESTION, *usual, *arguments])
        main()
        return capsys.readouterr().out.removesuffix("\n")

    file = tmp_path / "pair.json"
    file.write_text(json.dumps(PAIR))
    assert json.loads(shell("--model", "tiny", "--json-schema", str(file))).keys() == {"a", "b"}
    assert re.fullmatch("[0-9]{2} shells", shell("--model", "tiny", "--regex", "[0-9]{2} shells"))
    file.write_text("{")
    with pytest.raises(SystemExit):
        shell("--model", "tiny", "--json-schema", str(file))
    assert "cannot be read as JSON" in capsys.readouterr().err
