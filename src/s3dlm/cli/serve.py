"""Commands that show searches: `serve`, `view`, `demo`; nothing heavy is imported before one runs."""

from __future__ import annotations

import dataclasses
import os
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from s3dlm.cli import options
from s3dlm.cli.report import print_report
from s3dlm.errors import MissingExtraError, SettingsError

_KEY = "Key that every request must send."
_PROXY = "Reverse proxy whose X-Forwarded-For names the client: address or network; repeatable."
_METHOD = "For requests that name none."
_ALIAS = "Another name of the model: NAME or NAME=METHOD,SETTING=VALUE,…; repeatable."
_VERIFIER = "A verifier that requests may name, such as reward:MODEL; repeatable."
_LIMIT = "A limit: length, children, steps, nfe, seconds (per request), waiting, batch, …"

_REPLICAS = "Servers behind one address, over Ray: 2, 1-4 (with the load) or all (GPUs, or cores)."
_RAY = "Ray cluster of the replicas: auto or an address. Default: this machine."


def serve(
    model: options.ModelName = "tiny",
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[str | None, Option(envvar="S3DLM_API_KEY", help=_KEY)] = None,
    insecure: Annotated[
        bool, Option("--insecure", help="Let others connect without a key.")
    ] = False,
    cors: Annotated[options.Repeated, Option(help="Origin for browsers; repeatable.")] = None,
    proxy: Annotated[options.Repeated, Option(metavar="ADDRESS", help=_PROXY)] = None,
    method: Annotated[str | None, Option(help=_METHOD)] = None,
    alias: Annotated[options.Repeated, Option(help=_ALIAS)] = None,
    verifier: Annotated[options.Repeated, Option(help=_VERIFIER)] = None,
    limit: Annotated[options.Repeated, Option("--max", metavar="NAME=VALUE", help=_LIMIT)] = None,
    grace: Annotated[float, Option(help="Seconds for running requests after SIGTERM.")] = 60.0,
    device: options.Device = None,
    load: options.Load = None,
    replicas: Annotated[str | None, Option(help=_REPLICAS)] = None,
    ray: Annotated[str | None, Option(metavar="ADDRESS", help=_RAY)] = None,
) -> None:
    """Serve a model with OpenAI's API; its page at / shows searches.

    \b
    s3dlm serve --model tiny --port 8000
    s3dlm serve --alias fast=baseline --alias careful=revise,particles=8
    s3dlm serve --model GSAI-ML/LLaDA-8B-Instruct --replicas all
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "serve") from error
    from s3dlm.models.folder import defaults_of
    from s3dlm.models.registry import check_model_name
    from s3dlm.search.methods import DEFAULT
    from s3dlm.server.app import create_app
    from s3dlm.server.limits import Limits, bind_socket
    from s3dlm.server.run import REPLICAS, allowed_hosts, check_exposure, network
    from s3dlm.server.run import serve_until_signal as run
    from s3dlm.settings import Settings
    from s3dlm.verifier import GENERAL, check_verifier

    key = api_key or None
    check_exposure(host, key, insecure=insecure)
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Limits)}
    limits = Limits(**options.typed("--max", limit, kinds))
    how = options.loading(load, device=device)
    aliases = dict(_alias(text) for text in alias or ())
    judges = {name: options.own_verifier(name) for name in verifier or ()}
    # Mistakes are reported before a long load; the model's own values are not known yet.
    check_model_name(model)
    for own in ({}, *aliases.values()):
        Settings.recommended(defaults_of(model), **{"method": method or DEFAULT, **own})
    for judge in judges.values():
        check_verifier(GENERAL, judge)
    if ray is not None and replicas is None:
        raise SettingsError(f"--ray {ray} needs --replicas, such as --replicas all")
    follows = how.get("tensor_parallel") and os.environ.get("RANK", "0") != "0"
    bound = bind_socket(host, 0 if follows else port)  # one that follows never serves
    configuration: dict[str, Any] = {
        "limits": limits,
        "defaults": {} if method is None else {"method": method},
        # Clients see a file of one's own without its folder and its hash.
        "verifiers": {n if n == j else j.partition("@")[0]: j for n, j in judges.items()},
        "api_key": key,
        "hosts": allowed_hosts(host, key),
        "cors": cors or [],
        "proxies": [network(address) for address in proxy or ()],
        "aliases": aliases,
    }

    def announce(url: str) -> None:
        typer.echo(f"API: {url}/v1, viewer: {url}/")

    if replicas is None:
        web = create_app(options.load_model(model, **how), **configuration)
        run(web, bound, grace=grace, announce=announce)
        return
    port = bound.getsockname()[1]
    bound.close()  # it was free; the replicas' proxy listens there from here on
    typer.echo(f"starting {replicas} replicas of {model} …", err=True)
    REPLICAS.find("ray")(
        model, host, port, cluster=ray, announce=announce, replicas=replicas, device=device,
        load=how, grace=grace, **configuration,
    )  # fmt: skip


def _alias(text: str) -> tuple[str, dict[str, Any]]:
    """`NAME=METHOD,SETTING=VALUE` as a name and settings."""
    from s3dlm.search.methods import find_method

    name, _, rest = text.partition("=")
    method, *pairs = [part.strip() for part in rest.split(",")]
    if not name.strip():
        raise SettingsError(f"--alias {text!r} is not allowed; write NAME=METHOD,SETTING=VALUE")
    if method:
        find_method(method)  # a file of one's own may have settings of its own
    own = options.single(options.setting_values(pairs, "--alias"))
    return name.strip(), {**({"method": method} if method else {}), **own}


def view(
    traces: Annotated[list[Path], Argument(help="Files of `generate --trace`; two: compared.")],
    out: Annotated[Path | None, Option(help="HTML file to write.")] = None,
    open_: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write a recorded search, or two to compare, as one HTML page.

    s3dlm view trace.jsonl --out trace.html --open
    """
    from s3dlm.inputs import writing
    from s3dlm.viewer.page import standalone

    if len(traces) > 2:
        raise SettingsError(f"view compares at most two traces; got {len(traces)}")
    path = out or traces[0].with_suffix(".html")
    page = standalone(traces)
    with writing(path):
        path.write_text(page, encoding="utf-8")
    typer.echo(str(path))
    if open_:
        webbrowser.open(path.resolve().as_uri())


def demo(
    model: options.ModelName = "tiny",
    limit: Annotated[int, Option(min=1, help="Problems per task of the comparison.")] = 40,
    workers: Annotated[int, Option(min=1, help="Processes.")] = 2,
    out: Annotated[Path, Option(help="Folder of the comparison.")] = Path("runs/demo"),
) -> None:
    """Show one search live, then compare methods.

    s3dlm demo
    """
    typer.echo("One search live, then methods compared on the same problems; about two minutes.")
    loaded = options.load_model(model)
    from s3dlm.evaluation import demo as demos
    from s3dlm.evaluation import plan as plans
    from s3dlm.evaluation import processes
    from s3dlm.evaluation.run import Bars, evaluate

    defaults = plans.recommendations(loaded)
    plan = demos.comparison(loaded, defaults, limit)
    size = plans.settings_for("best_of_k", defaults).search.size
    with processes.runner(loaded, workers) as runner:
        task, question = demos.live_problem(loaded)
        options.say(f"\n1. One search, step by step\n\n{question}\n")
        result = demos.show_live(loaded, task, question)
        options.say(f"{result.text}\nanswer: {result.answer}\n")
        typer.echo(
            f"2. {', '.join(demos.COMPARED)}\n"
            f"   Held equal: problems, adaptive reveal, and for all that score the verifier\n"
            f"   checker, with 16 texts per pass if they look ahead. K = {size}; temperature and\n"
            f"   budget are what the model recommends for each.\n"
        )
        demos.clear(out)
        with Bars(plan) as bars:
            evaluate(runner, plan, out, observer=bars)
    typer.echo(f"3. Results on {limit} problems per task\n")
    print_report([out], False, reference=demos.REFERENCE)
