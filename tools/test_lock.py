"""Every pinned version has hashes in the lock, and pip takes the file."""

from __future__ import annotations

import re

from tools.lock import LEFT_OUT, ROOT, pinned, serving


def test_every_pinned_version_has_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    constraints = pinned((ROOT / "constraints.txt").read_text())
    assert pinned(lock) == {name: v for name, v in constraints.items() if name not in LEFT_OUT}
    assert set(LEFT_OUT) <= set(constraints)
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(lock))
    for entry in entries:  # as pip reads it: a name, a version, and at least one hash per line
        assert re.fullmatch(r"[a-z0-9-]+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n", entry), (
            entry
        )


def test_a_server_installs_no_more_than_it_needs_and_that_with_hashes() -> None:
    lock = (ROOT / "deploy" / "requirements.lock").read_text()
    assert lock == serving(), "run: python -m tools.lock --serve"
    names = set(pinned(lock))
    assert {"fastapi", "uvicorn", "transformers", "hatchling"} <= names
    assert not names & {"ray", "lm-eval", "pytest", "datasets", "torch"}
