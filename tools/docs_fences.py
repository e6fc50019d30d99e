"""A hook of `make docs`: a second word after a fence's language is for tests/test_docs.py, not for readers."""

from __future__ import annotations

import re
from typing import Any

MARKED = re.compile(r"^(```\w+) \w+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page as the site shows it."""
    return MARKED.sub(r"\1", markdown)
