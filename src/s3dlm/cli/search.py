"""`s3dlm generate` answers a prompt, or fills the holes of a text."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from s3dlm.cli import options
from s3dlm.errors import SettingsError

if TYPE_CHECKING:
    from s3dlm.diffusion.grammar import Grammar
    from s3dlm.result import Result
    from s3dlm.settings import Settings

_TASK = "Sets template, verifier and answer format; none: any text."
TaskName = Annotated[options.Repeated, Option(help=_TASK)]
_METHOD = "See `s3dlm list methods`."
MethodName = Annotated[options.Repeated, Option(help=_METHOD)]
_SET = "Any setting: docs/settings.md."
More = Annotated[options.Repeated, Option("--set", metavar="NAME=VALUE", help=_SET)]
STOPPED = {  # why a search ended early
    "satisfied": "the verifier is satisfied",
    "budget": "the budget is spent; --budget gives more",
    "agreed": "the vote is decided",
}


def generate(
    prompt: Annotated[str, typer.Argument(help="The question; - reads standard input.")] = "",
    method: MethodName = None,
    particles: Annotated[int | None, Option("-N", "--particles", help="Drafts kept (N).")] = None,
    budget: Annotated[int | None, Option(help="Most forward passes, in rounds.")] = None,
    verifier: options.VerifierName = None,
    temperature: Annotated[float | None, Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, Option(help="Same seed, same answer.")] = None,
    model: options.ModelName = "tiny",
    task: TaskName = None,
    infill: Annotated[str | None, Option(help="Fill the holes of this text; - is stdin.")] = None,
    json_schema: Annotated[
        Path | None, Option(help="The answer is JSON of the schema in this file.")
    ] = None,
    regex: Annotated[str | None, Option(help="The answer matches this expression.")] = None,
    branching: Annotated[int | None, Option("-b", "--branching", help="Children each (b).")] = None,
    lam: Annotated[float | None, Option(help="λ in the weights exp(λ·score).")] = None,
    resampling: Annotated[str | None, Option(help="How survivors are drawn.")] = None,
    look_aheads: Annotated[int | None, Option(help="Texts read per child.")] = None,
    selection: Annotated[str | None, Option(help="How the answer is chosen.")] = None,
    rounds: Annotated[int | None, Option(help="Searches after the first.")] = None,
    remask: Annotated[str | None, Option(help="What a later round re-masks.")] = None,
    decided_at: Annotated[float | None, Option(help="When adaptive_vote may stop.")] = None,
    gen_length: Annotated[int | None, Option(help="Tokens of the answer.")] = None,
    steps: Annotated[int | None, Option(help="Denoising steps.")] = None,
    block_length: Annotated[int | None, Option(help="Tokens per block.")] = None,
    policy: Annotated[str | None, Option(help="Which positions go first.")] = None,
    reveal: Annotated[str | None, Option(help="How many positions per step.")] = None,
    reveal_threshold: Annotated[float | None, Option(help="With --reveal threshold.")] = None,
    more: More = None,
    device: options.Device = None,
    load: options.Load = None,
    prompts: options.PromptsFile = None,
    trace: Annotated[Path | None, Option(help="Write every step as JSON lines.")] = None,
    pace: Annotated[
        float | None, Option(help="Steps shown per second; 0: all at once.", min=0)
    ] = None,
    timings: Annotated[bool, Option("--timings", help="Print where the time went.")] = False,
    as_json: options.AsJson = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only the answer.")] = False,
) -> None:
    """Answer a prompt and watch the search. Settings left out are the model's.

    \b
    s3dlm generate "Target: 15 Numbers: 10, 1, 6" --method revise
    s3dlm generate "Start with 7. Step 1: Add 5." --infill "Step 1: 7 + 5 =[[2]]"
    A hole is [[16]] for 16 tokens.
    """
    if not prompt and infill is None:
        raise SettingsError(f"ask a question, for example:\n{_examples(model)}")
    if not quiet:
        options.announce(model)  # before torch is imported, which takes a while
    from s3dlm import engine, tasks
    from s3dlm import trace as traces
    from s3dlm.job import OWN_PACE
    from s3dlm.models.folder import defaults_of
    from s3dlm.search.methods import DEFAULT, find_method
    from s3dlm.settings import Settings, fields, has

    verifier = options.own_verifier(verifier)
    given = {name: value for name, value in locals().items() if name in fields()}
    row, given_task = find_method(_only("--method", method) or DEFAULT), _only("--task", task)
    overrides, grammar = _overrides(given, more), _grammar(json_schema, regex)
    if grammar is not None and has(row, "reveal"):
        overrides |= OWN_PACE
    prompt, infill = _or_stdin(prompt), None if infill is None else _or_stdin(infill)
    task_name = tasks.of_question(given_task, prompt, defaults_of(model).tasks)
    # What can be checked is checked before a long load.
    recommended = defaults_of(model)
    settings = Settings.recommended(recommended, row, task_name, **overrides)
    _check(settings, prompt, task_name, infill)
    how = options.loading(load, device=device, prompts=prompts)
    if infill is None:
        _check_known(model, given_task, prompt)
    loaded = options.load_model(model, quiet=True, **how)
    if loaded.defaults != recommended:  # those of a model on the hub are known only now
        settings = Settings.for_model(loaded, row, task_name, **overrides)
    search = engine.stream(
        loaded, prompt, task=task_name, settings=settings, infill=infill, grammar=grammar
    )
    events = search.events
    if trace is not None:
        events = traces.write_trace(
            trace, loaded, events, question=prompt, task=task_name, settings=settings, infill=infill
        )
    if not (as_json or quiet):
        from s3dlm import board

        # An end token inside a text with holes does not end it.
        ends: frozenset[int] = loaded.end_ids if infill is None else frozenset()
        title, columns = f"{settings.method} on {loaded.name}", loaded.tokenizer.columns
        events = board.draw_search(
            events, board.pieces_of(loaded), ends, title=title, columns=columns,
            pace=board.STEPS_PER_SECOND if pace is None else pace,
        )  # fmt: skip
    *_, result = events
    assert isinstance(result, engine.Result)
    _print(result, as_json=as_json, quiet=quiet)
    for name, seconds in result.timings.items() if timings else ():
        share = 100 * seconds / max(result.seconds, 1e-9)
        typer.echo(f"{name:10} {seconds:8.3f} s  {share:5.1f} %", err=True)


def _overrides(given: Mapping[str, Any], more: options.Repeated) -> dict[str, Any]:
    """Settings by their own options and by --set."""
    flags = {name: value for name, value in given.items() if value is not None}
    sets = options.single(options.setting_values(more))
    if twice := flags.keys() & sets.keys():
        raise SettingsError(f"--set {min(twice)} and its own option were both given; give one")
    return {**flags, **sets}


def _grammar(json_schema: Path | None, regex: str | None) -> Grammar | None:
    """What the answer must be, by one of these options."""
    from s3dlm.diffusion.grammar import Grammar

    if json_schema is None:
        return None if regex is None else Grammar("regex", regex)
    if regex is not None:
        raise SettingsError("--json-schema and --regex were both given; give one")
    try:
        return Grammar.json_schema(json.loads(json_schema.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(
            f"--json-schema {json_schema} cannot be read as JSON: {getattr(error, 'strerror', None) or error}"
        ) from error


def _or_stdin(text: str) -> str:
    return sys.stdin.read().removesuffix("\n") if text == "-" else text


def _check(asked: Settings, prompt: str, task: str | None, infill: str | None) -> None:
    from s3dlm import tasks
    from s3dlm.diffusion.infill import Template
    from s3dlm.job import Job, check_prompt
    from s3dlm.verifier import GENERAL, check_verifier

    if task is not None:
        tasks.require_file(tasks.get(task))
    if asked.search.verified != "never":
        check_verifier(tasks.get(task).verifier if task else GENERAL, asked.verifier)
    if infill is not None:
        Template.parse(infill)
    check_prompt(Job(prompt, task, asked, infill=infill))


def _check_known(model: str, task: str | None, question: str) -> None:
    """A small model that knows a few tasks is not asked anything else by mistake."""
    from s3dlm import tasks
    from s3dlm.models.folder import BUNDLED, defaults_of

    known = defaults_of(model)
    if (why := tasks.outside(model, known.tasks, task, question)) is None:
        return
    others = [n for n in BUNDLED if tasks.of_question(None, question, defaults_of(n).tasks)]
    better = f"{others[0]} knows it" if others else "names a model that knows more"
    raise SettingsError(
        f"{why}. Ask, for example:\n{_examples(model)}\n--task none shows what it writes all the same; "
        f"--model {better}"
    )


def _examples(model: str) -> str:
    """Commands that ask a model what it knows."""
    from s3dlm import tasks
    from s3dlm.models.folder import BUNDLED, defaults_of

    named = "" if model == "tiny" else f" --model {model}"
    if model not in BUNDLED:
        return f"  s3dlm generate 'Ann has 3 apples and buys 4 more. How many has she?' --task gsm8k{named}"
    loaded = (
        tasks.load(tasks.get(name), prompt_style="tiny", limit=20)
        for name in defaults_of(model).tasks
    )
    shortest = [min((s.question for s in each.samples), key=len) for each in loaded]
    return "\n".join(f"  s3dlm generate {'$' * (chr(10) in q)}{q!r}{named}" for q in shortest)


def _only(flag: str, values: options.Repeated) -> str | None:
    names = options.split(values)
    if len(names) > 1:
        raise SettingsError(f"{flag} {','.join(names)}: generate takes one; `s3dlm eval` several")
    return names[0] if names else None


def _print(result: Result, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        event = {"event": "result", **result.to_dict()}  # as the last line of a trace
        typer.echo(json.dumps(event, ensure_ascii=False))
    elif quiet:
        whole = result.answer is None or result.holes or result.grammar is not None
        typer.echo(result.text if whole else result.answer)
    else:
        options.say(result.text)
        options.say(_summary(result), err=True)


def _summary(result: Result) -> str:
    """The answer with its votes, and what the search took, in two lines."""
    others = [
        f"{votes} say{'s' * (votes == 1)} {answer or 'nothing'}"
        for answer, votes in result.vote.items()
        if answer != result.answer
    ]
    notes = list[str]()
    cost = [f"{result.nfe} forward passes ({result.nfe_logical} without sharing)"]
    if result.answer is not None and len(result.survivors) > 1 and result.votes:
        agree = f"{result.votes} of {len(result.survivors)} drafts agree"
        notes.append(", ".join([agree, *others[:3]]))
    if result.p_correct is not None:
        notes.append(f"p_correct {result.p_correct:.2f}")
    if result.checkable is False:
        notes.append("no step to check")
    cost.append(f"{result.seconds:.2f} s")
    if result.stopped in STOPPED:
        cost.append(STOPPED[result.stopped])
    answer = "no answer found" if result.answer is None else f"answer: {result.answer}"
    answer = "answer: the text above" if result.text == result.answer else answer
    remarks = f"  ({'; '.join(notes)})" if notes else ""
    return f"\n{answer}{remarks}\n{'; '.join(cost)}"
