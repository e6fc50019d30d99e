"""From a name to a folder on disk: a local folder, or the Hugging Face hub's cache.

What is complete in the cache is used without asking the network; HF_HOME and HF_HUB_OFFLINE mean
what they mean everywhere. Only weights in safetensors, configs and tokenizer files are fetched.
"""

from __future__ import annotations

import re
from pathlib import Path

from s3dlm.errors import ModelError, SettingsError
from s3dlm.models.folder import shards

FILES = ("*.safetensors", "*.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*.jinja")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def find_folder(name: str, *, revision: str | None = None, code: bool = False) -> Path:
    """The folder a name stands for; `code` also fetches the repository's own Python files.

    `revision`, or what follows an @ in the name, pins a commit, tag or branch of the hub; a folder
    on disk has none.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise SettingsError(f"revision={revision!r} is for hub models; {name} is a folder")
        return folder
    if revision is None and "@" in name:
        name, _, revision = name.partition("@")
    if HUB_ID.fullmatch(name) and not name.startswith("."):
        cached = cached_folder(name, revision)
        if cached and (not code or any(cached.glob("*.py"))):
            return cached
        return _download(name, revision, (*FILES, "*.py") if code else FILES)
    raise ModelError(
        f"{name!r} is neither an existing folder nor a hub id such as GSAI-ML/LLaDA-8B-Instruct; "
        "`s3dlm models` lists the known names"
    )


def revision_of(folder: Path) -> str | None:
    """The commit that a folder of the hub's cache holds."""
    return folder.name if folder.parent.name == "snapshots" else None


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """The cached snapshot of a hub id, if all of its weights are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return folder if _complete(folder) else None


def _complete(folder: Path) -> bool:
    try:
        return (folder / "config.json").is_file() and bool(shards(folder))
    except ModelError:
        return False


def _download(name: str, revision: str | None, files: tuple[str, ...]) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    at = "" if revision is None else f" at revision {revision}"
    if constants.HF_HUB_OFFLINE:
        raise ModelError(
            f"{name}{at} is not in the hub's cache ({constants.HF_HUB_CACHE}) and HF_HUB_OFFLINE "
            f"is set; unset it, or fetch the model on a machine with a network: hf download {name}"
        )
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name} is gated; accept its licence on the hub, then: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"the hub has no revision {revision!r} of {name}") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no model {name}, or it is private (then: hf auth login)"
        ) from error
    except (errors.LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{name} is not cached and the hub cannot be reached; check the network, or put a copy "
            f"in the cache ({constants.HF_HUB_CACHE}), or pass a local folder"
        ) from error
