"""Writes requirements.lock: the versions of constraints.txt with the hashes of their files.

    python -m tools.lock INDEX
    python -m tools.lock --serve

The second writes deploy/requirements.lock: those of them that a server needs, and what builds the package.
INDEX is the address of a package index (PEP 503), without the name of a package. Of every version the lock
has the files for CPython 3.11 to 3.13 and the source. torch is left out: which of its builds a machine needs
(CPU, CUDA, ROCm) is not known here, and they come from indexes of their own.
"""

from __future__ import annotations

import argparse
import re
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LEFT_OUT = ("torch",)
SERVES = "s3dlm[serve,math]"
FILE = re.compile(r'href="[^"#]*/([^"#/]+)#sha256=([0-9a-f]{64})"')
# Wheels of one interpreter alone, of which the lock keeps those of today.
OF_ONE = re.compile(r"-(?:cp|pp|graalpy)[0-9]+-(?!abi3)")
OF_TODAY = re.compile(r"-cp31[123]-cp31[123]-")
WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[^-]+)?-[^-]+-[^-]+-[^-]+\.whl")


def normal(name: str) -> str:
    """A package's name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, str]:
    """Versions by name, of a file of constraints or a lock."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def hashes(index: str, name: str, version: str) -> list[str]:
    """Hashes of the files of one version."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/") as page:
        files = FILE.findall(page.read().decode())
    kept = []
    for file, digest in files:
        wheel = WHEEL.fullmatch(file)
        if wheel:
            fits = wheel["version"] == version and (
                not OF_ONE.search(file) or OF_TODAY.search(file)
            )
        else:
            stem = normal(re.sub(r"\.(tar\.gz|zip)$", "", file))
            fits = stem == normal(f"{name}-{version}")
        if fits:
            kept.append(digest)
    if not kept:
        raise SystemExit(
            f"{name}=={version} has no files with hashes at this index; give another one"
        )
    return sorted(kept)


def serving() -> str:
    """The entries of the lock that a server and the build of the package need here."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    left = [Requirement(each) for each in (SERVES, *pyproject["build-system"]["requires"])]
    seen: set[tuple[str, str]] = set()
    while left:
        wanted = left.pop()
        for extra in wanted.extras or {""}:
            if (normal(wanted.name), extra) in seen:
                continue
            seen.add((normal(wanted.name), extra))
            every = map(Requirement, requires(wanted.name) or ())
            left += [x for x in every if x.marker is None or x.marker.evaluate({"extra": extra})]
    needed = {name for name, _ in seen}
    head, *entries = re.split(
        r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE
    )
    return head + "".join(each for each in entries if each.partition("==")[0] in needed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("index", nargs="?", help="address of a package index")
    which.add_argument("--serve", action="store_true", help="write deploy/requirements.lock")
    given = parser.parse_args()
    if given.serve:
        (ROOT / "deploy" / "requirements.lock").write_text(serving())
        return
    versions = pinned((ROOT / "constraints.txt").read_text())
    wanted = [pair for pair in versions.items() if pair[0] not in LEFT_OUT]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: hashes(given.index, *pair), wanted))
    lines = [
        "# Written by `python -m tools.lock`; docs/appendix/reliability.md says how to use it.\n"
    ]
    for (name, version), digests in zip(wanted, found, strict=True):
        parts = [f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in digests)]
        lines.append(" \\\n".join(parts) + "\n")
    (ROOT / "requirements.lock").write_text("".join(lines))


if __name__ == "__main__":
    main()
