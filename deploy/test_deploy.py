"""What stands here is read as its programs would read it, and docs/deploy.md quotes nothing else."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from s3dlm.cli import main as cli
from tools import sizing

pytest.importorskip("fastapi")
from s3dlm.server.limits import Limits
from s3dlm.server.reporting import Metrics
from s3dlm.server.run import HARD_END_SECONDS

DEPLOY = Path(__file__).parent
ROOT = DEPLOY.parent
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
INSTRUCTIONS = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "STOPSIGNAL",
    "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def serve_parameters(arguments: list[str]) -> dict[str, Any]:
    """The options of `s3dlm serve`, which must exist."""
    command: Any = typer.main.get_command(cli.app)
    context = command.make_context("s3dlm", ["serve"], resilient_parsing=True)
    _, serve, _ = command.resolve_command(context, ["serve"])
    parameters: dict[str, Any] = serve.make_context("serve", list(arguments)).params
    return parameters


def docker_lines(text: str) -> list[tuple[str, str]]:
    """Instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (x.partition(" ") for x in text.splitlines()) if word]


def test_the_image() -> None:
    lines = docker_lines((DEPLOY / "Dockerfile").read_text())
    assert {word for word, _ in lines} <= INSTRUCTIONS
    bases = [rest.split()[0] for word, rest in lines if word == "FROM"]
    assert bases == ["python:${PYTHON}"] * 2  # a public image, by its plain name and its digest
    assert re.fullmatch(r"PYTHON=3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", lines[0][1])
    installs = [
        line
        for word, rest in lines
        if word == "RUN"
        for line in rest.split("&&")
        if "pip install" in line
    ]
    assert ["--require-hashes" in line for line in installs] == [True, False, False]
    assert "torch" in installs[1]  # of which only the index knows the build
    assert all("--no-deps" in installs[place] for place in (0, 2))
    assert "--no-build-isolation" in installs[2]
    stages = [index for index, (word, _) in enumerate(lines) if word == "FROM"]
    final = lines[stages[-1] :]
    users = [rest for word, rest in final if word == "USER"]
    assert users == ["10001"]
    assert not [rest for word, rest in final[final.index(("USER", "10001")) :] if word == "RUN"]
    entry, usual = (json.loads(dict(final)[word]) for word in ("ENTRYPOINT", "CMD"))
    assert entry[:2] == ["s3dlm", "serve"]
    assert serve_parameters([*entry[2:], *usual])["host"] == "0.0.0.0"
    probe = json.loads(dict(final)["HEALTHCHECK"].partition("CMD ")[2])
    compile(probe[2], "probe", "exec")
    assert "/health" in probe[2]
    for _, rest in (line for line in lines[: stages[-1]] if line[0] == "COPY"):
        assert all((ROOT / source).exists() for source in rest.split()[:-1])
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert kept[0] == "**"  # nothing but what is named, so no data and no keys
    assert all((ROOT / name[1:]).exists() for name in kept if name.startswith("!"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_image_builds_where_there_is_a_builder() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no builder of images here")
    build = [docker, "build", "-q", "-f", "deploy/Dockerfile", "-t", "s3dlm:test", "."]
    subprocess.run(build, cwd=ROOT, check=True)
    told = subprocess.run([docker, "run", "--rm", "s3dlm:test", "--help"], capture_output=True)
    assert b"--api-key" in told.stdout


def test_compose() -> None:
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    limits = dict(pair.split("=") for pair in serve_parameters(service["command"])["limit"])
    Limits(**{name: float(value) for name, value in limits.items()})
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(service["stop_grace_period"].rstrip("s")) > 60 + HARD_END_SECONDS


def test_the_unit() -> None:
    path = DEPLOY / "s3dlm.service"
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#")
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    service = unit["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    assert (program, command) == ("/opt/s3dlm/bin/s3dlm", "serve")
    parameters = serve_parameters(arguments)
    assert parameters["host"] == "127.0.0.1"
    assert float(service["TimeoutStopSec"]) > parameters["grace"] + HARD_END_SECONDS
    assert service["Restart"] == "on-failure"
    assert service["NoNewPrivileges"] == service["DynamicUser"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    # A call that the filter lacks fails; it must not kill the server, and the sandbox has its Landlock.
    assert service["SystemCallErrorNumber"] == "EPERM"
    calls = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    assert calls < set(service["SystemCallFilter"].split())
    analyse = shutil.which("systemd-analyze")
    if analyse is not None:  # exposure from 0 to 100; a plain unit has about 96
        check = [analyse, "security", "--offline=true", "--threshold=25", "--no-pager", str(path)]
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_nginx() -> None:
    text = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text())
    assert (
        "proxy_set_header X-Forwarded-For $remote_addr;" in text
    )  # what a client says is replaced
    depth, directives = 0, dict[str, str]()
    for statement, end in re.findall(r"\s*([^;{}]*)([;{}])", text):
        depth += {"{": 1, "}": -1, ";": 0}[end]
        assert depth >= 0
        assert bool(statement.strip()) == (end != "}"), statement
        if end == ";":
            name, _, value = statement.strip().partition(" ")
            directives[name] = value.strip()
    assert depth == 0
    assert directives["proxy_buffering"] == "off"
    assert (directives["proxy_http_version"], directives["proxy_pass"]) == ("1.1", "http://s3dlm")
    assert float(directives["proxy_read_timeout"].rstrip("s")) > Limits().seconds
    assert int(directives["client_max_body_size"].rstrip("m")) << 20 == Limits().body


def test_every_metric_of_the_dashboard_exists() -> None:
    """Also those of the table in docs/server.md."""
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert "credentials_file" in job["authorization"]
    known = set[str]()
    for metric in Metrics("tiny").collect():
        suffixes = {"counter": ("_total",), "gauge": ("",)}
        known |= {metric.name + s for s in suffixes.get(metric.type, ("_bucket", "_sum", "_count"))}
    board = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in board["templating"]["list"]]
    named = set(re.findall(r"\bs3dlm_\w+", " ".join(queries)))
    assert len(named) > 10
    assert named <= known
    server = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    whole = known | {name.rsplit("_", 1)[0] for name in known}
    assert set(re.findall(r"`(s3dlm_\w+)", server)) <= whole
    for query in queries:
        assert query.count("(") == query.count(")")
        assert query.count("{") == query.count("}")


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert "set -eu" in script.read_text()
    for name in re.findall(r"deploy/[\w.]+", script.read_text()):
        assert (ROOT / name).is_file()


def test_the_page_quotes_files_and_its_table_is_computed() -> None:
    files = [path.read_text() for path in DEPLOY.iterdir() if path.is_file()]
    quoted = re.findall(r"^```\w+\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(quoted) >= 2
    for text in quoted:
        assert any(text in file for file in files), text
    assert sizing.table() in PAGE, "run: python -m tools.sizing"
    for name in re.findall(r"`deploy/([\w.]+)", PAGE):
        assert (DEPLOY / name).is_file()
