"""Counting tokens as the paper does (OpenAI's cl100k_base) where its file is at hand.

The file is never downloaded: a run that reaches for the network in the middle of nowhere would hang
or count differently from its neighbour. Without it the model's own tokenizer counts, and the
manifest says which of the two it was.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from s3dlm.models.base import Tokenizer

_URL = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count and its name."""

    name: str
    count: Callable[[str], int]


def counter(tokenizer: Tokenizer) -> TokenCounter:
    """cl100k_base when tiktoken and its file are here, else the model's tokenizer."""
    if _cached():
        try:
            import tiktoken
        except ImportError:
            pass
        else:
            encoding = tiktoken.get_encoding("cl100k_base")
            return TokenCounter(
                "cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=()))
            )
    return TokenCounter("the model's tokenizer", lambda text: len(tokenizer.encode(text)))


def _cached() -> bool:
    """Whether tiktoken would find its file without the network: it looks under the URL's SHA-1."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    path = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (path / hashlib.sha1(_URL.encode()).hexdigest()).is_file()
