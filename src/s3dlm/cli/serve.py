"""`s3dlm serve` and `s3dlm view`; nothing heavy is imported before one of them runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from s3dlm.cli.loading import load_model
from s3dlm.cli.options import UnsafeCode, lists_from_pairs, method_names
from s3dlm.errors import MissingExtraError, SettingsError


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(serve)
    app.command()(view)


def serve(
    model: Annotated[str, typer.Option(help="tiny, a folder or a Hugging Face id.")] = "tiny",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="S3DLM_API_KEY", help="Key that every request must send.", show_envvar=True
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow other machines to connect without a key.")
    ] = False,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin that browsers may call from; repeatable.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Search method for requests that name none.", autocompletion=method_names
        ),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            help="Another name of the model, with a method and settings of its own: NAME or "
            "NAME=METHOD,SETTING=VALUE; repeatable.",
        ),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of `s3dlm eval --traces` whose searches the page offers; repeatable."
        ),
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Canvases per forward pass.")] = 128,
    max_waiting: Annotated[int, typer.Option(help="Searches in the queue.")] = 128,
    max_length: Annotated[int, typer.Option(help="Largest gen_length of a request.")] = 1024,
    max_children: Annotated[
        int, typer.Option(help="Largest particles × branching of a request.")
    ] = 64,
    max_steps: Annotated[int, typer.Option(help="Largest number of steps of a request.")] = 1024,
    max_nfe: Annotated[
        int, typer.Option(help="Most forward passes that one search may need.")
    ] = 100_000,
    max_seconds: Annotated[
        float, typer.Option(help="Seconds a request may take, queue included.")
    ] = 300.0,
    grace: Annotated[
        float, typer.Option(help="Seconds that running requests have after SIGTERM.")
    ] = 60.0,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Write prompts to the log.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or mps.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code of the checkpoint.")
    ] = False,
    verifier: Annotated[
        list[str] | None,
        typer.Option(
            help="A verifier that requests may name, such as reward:MODEL; repeatable. paper, plus "
            "and installed ones are always there."
        ),
    ] = None,
    unsafe_code: UnsafeCode = False,
) -> None:
    """Serve a model behind an OpenAI-compatible API, with a page at / that shows its searches.

    s3dlm serve --model tiny --port 8000

    s3dlm serve --alias fast=baseline --alias careful=best,particles=8
    """
    _require_extra()
    from s3dlm.server.app import create_app
    from s3dlm.server.limits import Limits
    from s3dlm.server.run import allowed_hosts, bind_socket, check_exposure
    from s3dlm.server.run import serve as run

    key = api_key or None
    check_exposure(host, key, insecure=insecure)
    limits = Limits(
        batch=max_batch, waiting=max_waiting, length=max_length, children=max_children,
        steps=max_steps, nfe=max_nfe, seconds=max_seconds,
    )  # fmt: skip
    bound = bind_socket(host, port)
    web = create_app(
        load_model(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code),
        limits=limits,
        defaults={} if method is None else {"method": method},
        verifiers={name: name for name in verifier or ()},
        api_key=key,
        hosts=allowed_hosts(host, key),
        log_prompts=log_prompts,
        cors=cors or (),
        runs=runs or (),
        aliases=dict(_alias(one) for one in alias or ()),
    )
    run(
        web,
        bound,
        grace=grace,
        announce=lambda url: typer.echo(f"API: {url}/v1, viewer: {url}/"),
    )


def _alias(text: str) -> tuple[str, dict[str, Any]]:
    """`NAME=METHOD,SETTING=VALUE` as a name and settings."""
    name, _, rest = text.partition("=")
    method, *pairs = [part.strip() for part in rest.split(",")]
    own = {key: values[0] for key, values in lists_from_pairs(pairs).items() if values}
    if not name.strip():
        raise SettingsError(f"--alias {text!r} is not allowed; write NAME=METHOD,SETTING=VALUE")
    return name.strip(), {**({"method": method} if method else {}), **own}


def view(
    traces: Annotated[
        list[Path],
        typer.Argument(help="Traces written by `generate --trace`; give two to compare them."),
    ],
    out: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write one self-contained HTML page that shows a recorded search, or compares two.

    s3dlm view trace.jsonl --out trace.html --open
    """
    from s3dlm.viewer.page import standalone

    if len(traces) > 2:
        raise SettingsError(f"view compares at most two traces; got {len(traces)}")
    path = out or traces[0].with_suffix(".html")
    page = standalone(traces)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}; choose --out") from error
    typer.echo(str(path))
    if open_:
        webbrowser.open(path.resolve().as_uri())


def _require_extra() -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "serve") from error
