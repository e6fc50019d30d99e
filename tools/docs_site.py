"""Hooks of `make docs`: fences and CSV files as readers see them, and the page of commands, which the program writes."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from s3dlm.cli.main import app

MARKED = re.compile(r"^(```\w+) \w+$", re.MULTILINE)  # the second word is for tests/test_docs.py
# Pygments takes a `console` block without prompts for output, which is grey.
SHELL = re.compile(r"^```(?:console$|$(?=\n(?:s3dlm|python|pip|curl) ))", re.MULTILINE)
DATA = re.compile(r"^\[([\w-]+\.csv)\]\(\1\).*$", re.MULTILINE)  # a line of its own
EXAMPLES = re.compile(r"^\x08\n((?:s3dlm .*\n)+)", re.MULTILINE)
LISTED = re.compile(r"^\* `(\w+)`: .*", re.MULTILINE)
CODE = re.compile(r"(?<!<span></span>)<code>([^<>\n]+)</code>")
HYPHENED = re.compile(r"(?<!\S)(?=\S*-)\S{2,23}(?!\S)")
LONG_CELL = re.compile(r"<td>(?!(?:<code>[^<]*</code>,? ?)+</td>)(?=(?:[^<]|<(?!/td>)){80})")


def on_files(files: Files, config: Any) -> Files:
    """Every command with its options, as `--help` has them."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    text = get_docs_for_click(obj=group, ctx=typer.Context(group), name="s3dlm")
    text = EXAMPLES.sub(r"```bash\n\1```\n\n", text.replace("$ s3dlm", "s3dlm"))
    top, heading, rest = text.replace("# `s3dlm`", "# Commands", 1).partition("\n## ")
    summaries = {name: sub.get_short_help_str(limit=200) for name, sub in group.commands.items()}
    top = LISTED.sub(lambda m: f"* [`{m[1]}`](#s3dlm-{m[1]}): {summaries[m[1]]}", top)
    page = (top + heading + rest).replace("docs/settings.md", "[settings](settings.md)")
    files.append(File.generated(config, "commands.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = Path(page.file.abs_src_path).parent if page.file.abs_src_path else Path()
    tables = DATA.sub(lambda link: f"{link[0]}\n\n{_table(folder / link[1])}", markdown)
    return SHELL.sub("```bash", MARKED.sub(r"\1", tables))


def _table(path: Path) -> str:
    """The rows of a CSV file, folded in the appendix."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = ["| " + " | ".join(row).replace("\n", " ") + " |" for row in csv.reader(file)]
    rule = "|" + "---|" * (head.count("|") - 1)
    body = "\n".join(f"    {line}" for line in (head, rule, *rows))
    fold = "???" if path.parent.name == "appendix" else "???+"
    return f'{fold} note "{len(rows)} rows"\n{body}'


def on_page_content(html: str, **_: Any) -> str:
    """Where code may break: a long name between its parts, an option nowhere (docs/site.css)."""
    return CODE.sub(_breakable, LONG_CELL.sub('<td class="prose">', html))


def _breakable(code: re.Match[str]) -> str:
    text = code[1]
    if len(text) > 18:
        text = re.sub(r"(?<=\w)(::|[_./=,])(?=\w)", r"\1<wbr>", text)
    text = HYPHENED.sub(r'<span class="whole">\g<0></span>', text)
    return f"<code>{text}</code>"
