"""The API as one page at /docs, made from the OpenAPI document; it loads nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: light-dark(#57606a, #9aa5b5);
  --tint: light-dark(#f6f8fa, #1b212c); --link: light-dark(#0550ae, #7cc4ff); }
body { font: 15px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.1rem 4rem;
  background: light-dark(#fff, #0f131a); color: light-dark(#1b1f24, #e8ebf1); }
h1 { margin: 0 0 .2rem; } h2 { margin: 2.2rem 0 .2rem; font-size: 1.05rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .88rem; }
pre { background: var(--tint); padding: .7rem .9rem; border-radius: 7px; white-space: pre-wrap; overflow-wrap: anywhere; }
h2 b { display: inline-block; min-width: 3.4rem; color: var(--link); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
td { border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top; overflow-wrap: anywhere; }
td:first-child { width: 12rem; } td:nth-child(2) { color: var(--soft); width: 14rem; }
summary { cursor: pointer; color: var(--link); } a { color: var(--link); } p { margin: .3rem 0 .6rem; }
@media (max-width: 600px) { td { display: block; border: 0; padding: 0 0 .1rem; width: auto !important; }
  tr { display: block; border-top: 1px solid var(--line); padding: .35rem 0; } }
"""


def page(api: Mapping[str, Any], address: str, model: str | None) -> str:
    """The page of an OpenAPI document; the model has no name for those who need a key."""
    body = "".join(_operations(api))
    info = api["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info.get('summary', ''))} The same as data: "
        '<a href="openapi.json">openapi.json</a>. To watch a search: <a href="./">the viewer</a>.</p>'
        f"<pre>{escape(_example(address, model))}</pre>{body}</body></html>\n"
    )


def _example(address: str, model: str | None) -> str:
    key = "" if model else " -H 'authorization: Bearer KEY'"
    return f"""curl -s {address}v1/chat/completions -H 'content-type: application/json'{key} -d '{{
  "model": {json.dumps(model or "MODEL")}, "messages": [{{"role": "user", "content": "Target: 45 Numbers: 8, 7, 11"}}],
  "task": "countdown", "method": "s3", "particles": 4, "logprobs": true}}'"""


def _operations(api: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in api["paths"].items():
        for verb, operation in methods.items():
            yield f"<h2><b>{escape(verb.upper())}</b> <code>{escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description', ''))}</p>"
            content = operation.get("requestBody", {}).get("content", {})
            for body in content.values():
                yield _fields(_resolved(api, body["schema"]))


def _fields(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    described = schema.get("properties", {})
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{' required' if name in required else ''}</td>"
        f"<td>{escape(_kind(one))}</td><td>{escape(one.get('description', ''))}</td></tr>"
        for name, one in sorted(described.items(), key=lambda pair: pair[0] not in required)
    )
    return f"<details><summary>{len(described)} fields</summary><table>{rows}</table></details>"


def _kind(schema: Mapping[str, Any]) -> str:
    """What may be given, in a few words."""
    if "anyOf" in schema:
        parts = [_kind(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(part for part in parts if part))
    if "enum" in schema:
        return ", ".join(str(one) for one in schema["enum"] if one is not None)
    kinds = schema.get("type", schema.get("$ref", "").rpartition("/")[2])
    words = " or ".join(k for k in kinds if k != "null") if isinstance(kinds, list) else kinds
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{words} from {low:g} to {high:g}"
    return f"{words} from {low:g} up" if low is not None else str(words)


def _resolved(api: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = api["components"]["schemas"][name] if name else schema
    return found
