"""How large the house is: `python -m tools.count [--json]`.

Lines and files of `src/` by room, tests, words of docs, what `s3dlm.engine` reaches, functions with one
caller, class names with several meanings, settings, commands and options. Budgets are in
tests/test_architecture.py.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    named = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The package's modules that a file imports, lazy and type-only imports included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in known:
                yield node.module
            for alias in node.names:
                if f"{node.module}.{alias.name}" in known:
                    yield f"{node.module}.{alias.name}"


def reached(start: str) -> set[str]:
    """All modules that a module imports, and they in turn, but for the package itself, which imports by name."""
    known = modules()
    seen, pending = {start}, [start]
    while pending:
        for name in imported(known[pending.pop()], known):
            if name not in seen and name != "s3dlm":
                seen.add(name)
                pending.append(name)
    return seen


def functions() -> tuple[int, int, int]:
    """Functions in all, private ones, and private ones that are used exactly once."""
    trees = [ast.parse(path.read_text()) for path in SRC.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    defined = [n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    used = Counter(n.id for n in nodes if isinstance(n, ast.Name))
    used.update(n.attr for n in nodes if isinstance(n, ast.Attribute))
    private = [name for name in defined if name.startswith("_") and not name.endswith("__")]
    return len(defined), len(private), sum(used[name] == 1 for name in private)


def shared_class_names() -> dict[str, int]:
    """Class names that are defined in more than one place."""
    classes = Counter(
        node.name
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in sorted(classes.items()) if count > 1}


def command_line() -> tuple[int, int]:
    """Commands, and the options of all of them together."""
    from typer.main import get_command

    from s3dlm.cli import main

    commands = get_command(main.app).commands  # type: ignore[attr-defined]
    options = [
        parameter
        for command in commands.values()
        for parameter in command.params
        if parameter.param_type_name == "option"
    ]
    return len(commands), len(options)


def settings() -> int:
    from s3dlm.settings import Settings

    return len(Settings.model_fields) - 1  # but for the method


def count() -> dict[str, object]:
    """All figures."""
    files = sorted(SRC.rglob("*.py"))
    rooms: Counter[str] = Counter()
    for path in files:
        parts = path.relative_to(SRC / "s3dlm").parts
        rooms[parts[0] if len(parts) > 1 else "(root)"] += lines(path)
    known = modules()
    engine = reached("s3dlm.engine")
    defined, private, once = functions()
    commands, options = command_line()
    return {
        "src_lines": sum(rooms.values()),
        "src_files": len(files),
        "longest_file": max(map(lines, files)),
        "rooms": dict(rooms),
        "root_modules": sum(path.parent == SRC / "s3dlm" for path in files) - 1,
        "test_lines": sum(map(lines, (ROOT / "tests").rglob("*.py"))),
        "engine_modules": len(engine),
        "engine_lines": sum(lines(known[name]) for name in engine),
        "functions": defined,
        "private_functions": private,
        "private_functions_used_once": once,
        "shared_class_names": shared_class_names(),
        "settings": settings(),
        "commands": commands,
        "options": options,
        "docs_words": sum(len(path.read_text().split()) for path in (ROOT / "docs").glob("*.md")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    figures = count()
    if parser.parse_args().json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):30}{value}")


if __name__ == "__main__":
    main()
