"""How large the house is: `python -m tools.count [--json]`.

Sizes against budgets, lines by room, functions with one caller, settings, commands and options, and names that
several modules define. A budget that is passed is reported, and fails
nothing: what must hold (import rules, no cycles) is in tests/test_architecture.py.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
EXTRAS = SRC / "s3dlm" / "extras"

BUDGETS = {  # figure: (at most, what it counts)
    "core_lines": (19_000, "lines of Python in src/ without extras/"),
    "core_files": (120, "Python files in src/ without extras/"),
    "extras_lines": (5_000, "lines of Python in src/s3dlm/extras/"),
    "engine_modules": (
        48,
        "modules that s3dlm.engine reaches, lazy and type-only imports included",
    ),
    "engine_lines": (8_500, "lines of these modules"),
    "longest_file": (320, "lines of the longest Python file in src/"),
    "test_lines": (15_000, "lines of Python in tests/"),
    "readme_words": (700, "words of README.md"),
    "docs_words": (16_000, "words of docs/*.md, but for settings.md, which is generated"),
    "appendix_words": (12_000, "words of docs/appendix/*.md"),
}


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


def shared_names() -> dict[str, list[str]]:
    """Functions, constants and classes of modules that several modules define, with these modules."""
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        for name in sorted(set(_defined(ast.parse(path.read_text())))):
            places.setdefault(name, []).append(module)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def _defined(tree: ast.Module) -> Iterator[str]:
    """What a module defines at its top level; private names belong to it alone."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            within = [each for target in targets for each in ast.walk(target)]
            names = [
                each.id
                for each in within
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def words(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


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
    from s3dlm.settings import fields

    return len(fields())


def count() -> dict[str, Any]:
    """All figures."""
    files = sorted(SRC.rglob("*.py"))
    rooms: Counter[str] = Counter()
    for path in files:
        parts = path.relative_to(SRC / "s3dlm").parts
        rooms[parts[0] if len(parts) > 1 else "(root)"] += lines(path)
    core = [path for path in files if not path.is_relative_to(EXTRAS)]
    docs = ROOT / "docs"
    known = modules()
    engine = reached("s3dlm.engine")
    defined, private, once = functions()
    commands, options = command_line()
    return {
        "core_lines": sum(map(lines, core)),
        "core_files": len(core),
        "extras_lines": sum(map(lines, EXTRAS.rglob("*.py"))),
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
        "shared_names": shared_names(),
        "settings": settings(),
        "commands": commands,
        "options": options,
        "readme_words": words(ROOT / "README.md"),
        "docs_words": words(*(path for path in docs.glob("*.md") if path.name != "settings.md")),
        "appendix_words": words(*(docs / "appendix").glob("*.md")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    figures = count()
    if parser.parse_args().json:
        budgets = {
            name: {"value": figures[name], "at_most": most, "counts": what}
            for name, (most, what) in BUDGETS.items()
        }
        print(json.dumps({**figures, "budgets": budgets}))
        return
    for name, (most, what) in BUDGETS.items():
        over = figures[name] - most
        verdict = f"{over:,} over" if over > 0 else "kept"
        print(f"{figures[name]:>8,} of {most:>6,}  {verdict:14}{what}")
    print()
    shared = figures.pop("shared_names")
    for name, value in figures.items():
        if name not in BUDGETS:
            print(f"{name.replace('_', ' '):30}{value}")
    print(f"\n{len(shared)} names that several modules define:")
    for name, places in shared.items():
        print(f"  {name:24}{', '.join(place.removeprefix('s3dlm.') for place in places)}")


if __name__ == "__main__":
    main()
