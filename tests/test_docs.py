"""What the pages say works: Python is run, marked commands are run, all other commands parse.

A fence may carry a word after its language. Python blocks run, in order, in one namespace a page,
unless they are a `sketch`, and what stands behind a `print` as a comment must be what it prints; `console run`
blocks run in a folder of the page's own, and where a command begins with `$` its output must be what the page shows.
A quotation after such a block must be in what it printed. Every other `s3dlm` command must parse.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

import s3dlm
from s3dlm.cli import main as cli

ROOT = Path(__file__).parents[1]
# These pages run in test_documented_answers.py, where their answers are graded as well.
ANSWERED = ("README.md", "quickstart.md", "howto.md")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"\A[^`>]*?((?:^> .*\n)+)", re.MULTILINE)  # in the text that follows a fence
INLINE = re.compile(r"`(s3dlm [^`]+)`")


@dataclass(frozen=True)
class Block:
    """One fence of a page."""

    language: str
    mark: str
    text: str
    quoted: str = ""  # of its output, in the text below it

    def commands(self) -> Iterator[tuple[str, str | None]]:
        """Commands with the output the page shows; None where it shows none."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if not any(line.startswith("$ ") for line in lines):
            yield from ((line.split("  #")[0], None) for line in lines if line.strip())
            return
        for part in re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output.strip() or None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    made = []
    for fence in FENCE.finditer(text):
        quotation = QUOTED.match(text[fence.end() :])
        quoted = re.sub(r"^> ", "", quotation[1], flags=re.MULTILINE) if quotation else ""
        made.append(Block(*fence.groups(), quoted))
    return made


def commands() -> list[Any]:
    """(page, command) of all that is not run: it must at least parse."""
    found = []
    for page in PAGES:
        shown = [
            c
            for b in blocks(page)
            if b.language in ("console", "bash", "sh")
            for c, _ in b.commands()
        ]
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        shown += INLINE.findall(prose)
        found += [
            pytest.param(c, id=f"{page.stem}: {c[:60]}") for c in shown if c.startswith("s3dlm ")
        ]
    return found


@pytest.fixture(scope="module")
def command_line() -> Any:
    return typer.main.get_command(cli.app)


@pytest.mark.parametrize("command", commands())
def test_a_command_parses(command: str, command_line: Any) -> None:
    arguments = shlex.split(command)[1:]
    if arguments[0].startswith("-"):
        return
    group = command_line.make_context("s3dlm", arguments, resilient_parsing=True)
    name, sub, rest = command_line.resolve_command(group, arguments)
    bare = not rest or "…" in rest or rest == ["--help"]  # a page may leave arguments out
    sub.make_context(name, list(rest), resilient_parsing=bare)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ANSWERED], ids=lambda page: page.name
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(matplotlib|pyparsing)")
def test_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def run_page(page: Path) -> None:
    """Run Python blocks and marked commands in the order of the page, in the current folder."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python" and block.mark != "sketch":
            names["print"] = print_as_shown(block)
            exec(compile(block.text, f"{page.name}", "exec"), names)
        elif block.language == "console" and block.mark == "run":
            printed = ""
            for command, output in block.commands():
                said = run(command)
                assert output is None or said.strip() == output, command
                printed += said
            assert " ".join(block.quoted.split()) in " ".join(printed.split())


def print_as_shown(block: Block) -> Callable[..., None]:
    """`print` that compares with the comment on its line; after a colon the comment explains."""

    def checked(*values: object) -> None:
        line = block.text.splitlines()[sys._getframe(1).f_lineno - 1]
        shown, printed = line.partition("  # ")[2], " ".join(map(str, values))
        assert not shown or shown == printed or shown.startswith(f"{printed}: "), (shown, printed)

    return checked


def run(command: str) -> str:
    """`s3dlm` in this process, anything else in a shell."""
    if not command.startswith("s3dlm "):
        # `python` is the one that runs the tests, activated or not.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            command, shell=True, check=True, capture_output=True, text=True,
            env={**os.environ, "PATH": path},
        ).stdout  # fmt: skip
    done = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"
    return done.stdout


def test_make_demo_installs_what_the_first_pages_run() -> None:
    wanted = "-e '.[math,report,serve]'"
    assert wanted in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert wanted in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_the_reference_of_settings_is_what_the_code_says() -> None:
    """In a process of its own: other tests register methods."""
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    code = "from tools import settings_page; print(settings_page.page(), end='')"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    assert written == said, "run: python -m tools.settings_page"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_the_tests_that_reliability_names_exist() -> None:
    """`file.py::test`, several separated by spaces, or a folder of tests."""
    for name, column in (("promises", 2), ("tried", 1)):
        text = (ROOT / "docs" / "appendix" / f"reliability-{name}.csv").read_text(encoding="utf-8")
        rows = [row[column] for row in csv.reader(text.splitlines())][1:]
        assert all(rows)
        for named in " ".join(rows).split():
            path, _, test = named.partition("::")
            assert f"def {test}(" in (ROOT / path).read_text() if test else (ROOT / path).is_dir()


def test_the_site_builds_and_its_search_finds_a_setting(tmp_path: Path) -> None:
    """Strict: a page that is missing from the menu and a link that leads nowhere are errors."""
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=900,
    )  # fmt: skip
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("ess_threshold" in page["text"] for page in index["docs"])
    howto = (tmp_path / "howto" / "index.html").read_text(encoding="utf-8")
    assert "console run" not in howto  # the words for tests are not for readers
    assert "https://fonts." not in howto
    commands = (tmp_path / "commands" / "index.html").read_text(encoding="utf-8")
    assert 'id="s3dlm-generate"' in commands
    assert "```" not in commands
    assert "**Options**" not in commands
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= {path.name for path in tmp_path.iterdir()}


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == s3dlm.__version__
    assert citation["cff-version"] == "1.2.0"
