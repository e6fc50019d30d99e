"""The page as files for the server, and as one self-contained file for `s3dlm view`.

The page is plain ES modules. A file opened from disk cannot import others, so for `view` the modules
are joined into one in the order of their imports, and the trace is embedded as data. Top-level names
must therefore differ between modules; a test loads the result.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from s3dlm.answers.grading import gold_in_words
from s3dlm.trace import read_trace

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jsonl": "application/jsonl; charset=utf-8",
}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_IMPORT = re.compile(r'^import\s[^;]{0,1000}?from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


@cache
def viewer_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by name, with its content type."""
    folder = resources.files("s3dlm.viewer") / "static"
    return {
        file.name: (file.read_bytes(), CONTENT_TYPES[Path(file.name).suffix])
        for file in folder.iterdir()
        if Path(file.name).suffix in CONTENT_TYPES
    }


def standalone(traces: Sequence[str | Path]) -> str:
    """One HTML file that shows recorded traces, side by side if there are two."""
    recorded = []
    for path in traces:
        read_trace(path)  # raises if the file is not a trace
        text = for_page(Path(path).read_bytes()).decode()
        recorded.append({"name": Path(path).name, "text": text})
    # "<" cannot end the script element when it is written as an escape.
    data = json.dumps(recorded, ensure_ascii=False).replace("<", "\\u003c")
    style, script = f"\n{_text('style.css')}", f"\n{joined('main.js')}"
    # Nothing is loaded, nothing is sent, and no other code runs than this script.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    charset, page = '<meta charset="utf-8">', _text("index.html")
    governed = f'{charset}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    for old, new in (
        (charset, governed),
        ('<link rel="stylesheet" href="/viewer/style.css">', f"<style>{style}</style>"),
        (
            '<script type="module" src="/viewer/main.js"></script>',
            f'<script type="application/json" id="recorded">{data}</script>\n'
            f'<script type="module">{script}</script>',
        ),
    ):
        assert page.count(old) == 1, old
        page = page.replace(old, new)
    return page


def for_page(trace: bytes) -> bytes:
    """A trace whose header also has the gold answer in words."""
    first, end, rest = trace.partition(b"\n")
    header = json.loads(first)
    if "gold" in header:
        header["gold_text"] = gold_in_words(header["gold"])
    line = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    return line.encode() + end + rest


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def joined(entry: str) -> str:
    """A module and all it imports as one module, each once, imported ones first."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for imported in _IMPORT.findall(_text(name)):
            visit(imported)
        order.append(name)

    visit(entry)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _text(name))) for name in order)


def _text(name: str) -> str:
    return viewer_files()[name][0].decode()
