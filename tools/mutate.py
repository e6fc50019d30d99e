"""Which small errors the tests notice: `python -m tools.mutate [--seed S] [--count 40] [--json]`.

Makes random small changes, one at a time, in a temporary copy of the repository: an operator, a comparison,
a condition or a number of the code that searches, fills, verifies and reads answers. After each it runs the
tests that belong to the file, and reports the changes that no test noticed. Not part of `make test`: a change
takes about ten seconds. Left out is what has no behaviour to test: errors' messages, asserts, type hints,
decorators, the bounds of what is kept in memory, and the numbers of system calls.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

TIMEOUT, NOTHING_RUNS = "timeout", "no test could be run"
ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    "search",
    "diffusion",
    "verifier",
    "answers",
    "extras/code",
    "extras/published",
    "extras/grids",
    "extras/structure",
)
KERNEL = "extras/code/sandbox"  # numbers and rules of a kernel, of which a machine has one
EXAMPLE = "example: python -m tools.mutate --seed 1 --count 10 --only answers"

# From a file, or else its folder, to the tests that should notice: the nearest and fastest first. Folders of
# tests are not run as a whole, since some take minutes.
_FILL = (
    "test_schedule search/test_reveal models/test_llada_decoding test_reading search/test_methods"
)
_BLOCKS = f"{_FILL} models/test_dream_decoding models/test_block_decoding test_infill"
_NUMBERS = "answers/test_numbers answers/test_extract answers/test_normalise answers/test_grade"
_ARITHMETIC = "verifier/test_equations verifier/test_components verifier/test_checker"
_EVERY_SCORE = f"{_ARITHMETIC} verifier/test_composite verifier/test_base"
_LOOP = "laws/test_s3 search/test_methods search/test_look_aheads"
_CODE = "extras/code/test_programs extras/code/test_code_verifier extras/code/test_code_tasks"
TESTS = {
    "answers": f"{_NUMBERS} {_ARITHMETIC} answers/test_untrusted_text answers/test_mathverify",
    "answers/grids.py": "answers/test_grids verifier/test_constraints verifier/test_partial tasks/test_tasks",
    "answers/kinds.py": f"test_changes {_NUMBERS}",
    "verifier": f"{_EVERY_SCORE} verifier/test_constraints verifier/test_partial test_messages",
    "verifier/calibration.py": "verifier/test_calibration evaluation/test_calibrate",
    "verifier/base.py": f"{_EVERY_SCORE} verifier/test_own verifier/test_partial search/test_verify",
    "verifier/own.py": "verifier/test_own verifier/test_base",
    "verifier/checker.py": "verifier/test_checker verifier/test_partial",
    "verifier/weights.py": "verifier/test_checker verifier/test_composite",
    "diffusion": _BLOCKS,
    "diffusion/decoding.py": f"test_settings test_messages {_FILL}",
    "diffusion/infill.py": "test_infill test_messages",
    **dict.fromkeys(
        ("diffusion/grammar.py", "extras/structure"),
        "extras/structure/test_structure fuzz/test_hostile_grammars",
    ),
    "search": f"{_LOOP} search/test_memo search/test_verify search/test_rounds test_infill golden/test_golden",
    "search/expand.py": f"{_LOOP} laws/test_target golden/test_golden",
    "search/method.py": f"test_settings test_messages {_LOOP}",
    "search/options.py": f"test_settings test_messages {_LOOP}",
    "search/remask.py": "search/test_rounds search/test_later_rounds",
    "search/resample.py": f"laws/test_resampling {_LOOP}",
    "search/revise.py": "test_settings test_messages search/test_rounds search/test_later_rounds search/test_memo search/test_methods",
    "search/rounds.py": "search/test_rounds search/test_later_rounds search/test_memo",
    "search/samples.py": f"search/test_adaptive_vote search/test_reveal search/test_memo laws/test_target {_LOOP}",
    "search/score.py": "search/test_verify search/test_errors search/test_look_aheads search/test_methods",
    "search/select.py": "search/test_select extras/published/test_temporal_vote search/test_look_aheads",
    "search/smc.py": f"test_settings laws/test_target {_LOOP}",
    "extras/code": _CODE,
    "extras/uniform.py": "models/test_uniform",
    "extras/grids": "extras/grids/test_mend extras/grids/test_screening extras/grids/test_moves",
    "extras/published": "extras/published/test_own_loops extras/published/test_steering search/test_methods search/test_rounds golden/test_golden",
}

# What bounds memory and changes no result: constants, and functions that forget.
BOUNDS = {"MOST_TEXTS", "MOST_TOKENS", "MOST_PARTIAL", "PORTION", "ENDLESS", "MAX_REPLY"}
FORGETTING = {"_forget"}
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.And: (ast.Or,),
    ast.Or: (ast.And,), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.FloorDiv,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One expression of a file and what stands in its place."""

    path: str  # under src/s3dlm
    line: int
    start: int  # bytes of the file
    stop: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.stop :]


def replaced(node: ast.expr, rng: random.Random, *, condition: bool) -> ast.expr | None:
    """The expression with one thing changed; None if there is nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Name() | ast.Attribute() | ast.Call() | ast.NamedExpr() if condition:
            return ast.UnaryOp(ast.Not(), new)
        case ast.Compare(ops=ops):
            place = rng.randrange(len(ops))
            ops[place] = rng.choice(SWAPS[type(ops[place])])()  # type: ignore[call-overload]
        case ast.BoolOp() | ast.BinOp() if type(new.op) in SWAPS:
            new.op = rng.choice(SWAPS[type(new.op)])()  # type: ignore[assignment]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return new.operand
        case ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
        case ast.Constant(value=bool() as value):
            new.value = not value
        case ast.Constant(value=int() as value):
            new.value = value + (rng.choice((-1, 1)) if value else 1)
        case ast.Constant(value=float() as value):
            new.value = value * 1.5 if value else 1.0
        case _:
            return None
    return new


def expressions(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Every expression below a node that has a behaviour to test, and whether it is a condition."""
    for name, below in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "msg"):
            continue
        for child in below if isinstance(below, list) else [below]:
            if not isinstance(child, ast.AST) or _is_left_out(child):
                continue
            if isinstance(child, ast.expr):
                yield child, name == "ifs" or (isinstance(node, ast.If) and name == "test")
            yield from expressions(child)


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion
        return True
    if isinstance(node, ast.Name) and node.id == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.FunctionDef) and node.name in FORGETTING:
        return True
    names = node.targets if isinstance(node, ast.Assign) else ()
    flat = [each for name in names for each in ast.walk(name) if isinstance(each, ast.Name)]
    aliases = isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Subscript)
    alias = aliases and bool(flat) and flat[0].id[:1].isupper() and not flat[0].id.isupper()
    return alias or any(name.id in BOUNDS for name in flat)


def changes(root: Path, rng: random.Random, only: str = "") -> list[Change]:
    """One change for every place that allows one, in all files whose path holds `only`."""
    package, found = root / "src" / "s3dlm", []
    for path in sorted(each for place in PLACES for each in (package / place).rglob("*.py")):
        name, source = str(path.relative_to(package)), path.read_bytes()
        if only not in name or name.startswith(KERNEL):
            continue
        lines = [0]
        for line in source.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        for node, condition in expressions(ast.parse(source)):
            if (new := replaced(node, rng, condition=condition)) is None:
                continue
            start = lines[node.lineno - 1] + node.col_offset
            stop = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            before, after = source[start:stop].decode(), f"({ast.unparse(new)})"
            if isinstance(node, ast.Constant):
                after = after[1:-1]
            found.append(Change(name, node.lineno, start, stop, before, after))
    return found


def tests_of(path: str) -> tuple[str, ...]:
    """The tests that belong to a file, else those of the nearest folder."""
    names = TESTS[next(p for p in (path, *map(str, Path(path).parents)) if p in TESTS)]
    return tuple(f"tests/{name}.py" for name in names.split())


def run(root: Path, tests: tuple[str, ...], seconds: float) -> str | None:
    """These tests in this copy, in one process and thread: the first that fails, or None."""
    given = filter(None, [os.environ.get("PYTHONPATH")])  # behind the copy
    paths = {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root), *given])}
    fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-rfE", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests], cwd=root, text=True,
            env={**os.environ, **paths, **fixed}, capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return TIMEOUT
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s[]+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else NOTHING_RUNS


def copied(to: Path) -> Path:
    """The checkout without what tests do not need."""
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "runs", "site")
    return Path(shutil.copytree(ROOT, to / "copy", ignore=ignore))


def survey(
    seed: int, count: int, only: str, seconds: float, report: Callable[[Change, str | None], None]
) -> list[tuple[Change, str | None]]:
    """Make the changes one after the other; which test failed at each, None if none did. A test that
    fails without the change says nothing, so each is tried."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder))
        every = changes(root, rng, only)
        chosen = rng.sample(every, min(count, len(every)))
        sound, found = set[str](), []
        for change in chosen:
            path = root / "src" / "s3dlm" / change.path
            source = path.read_bytes()
            path.write_bytes(change.apply(source))
            tests = tests_of(change.path)
            failed = run(root, tests, seconds)
            path.write_bytes(source)
            suspect = tests[0] if failed == NOTHING_RUNS else failed
            if suspect and suspect not in {TIMEOUT, *sound}:
                if run(root, (suspect,), seconds):
                    raise SystemExit(f"{suspect} fails without any change; repair it first")
                sound.add(suspect)
            found.append((change, failed))
            report(change, failed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutate",
        description="Makes small random changes in a copy of the code, and counts those that a test notices.",
        epilog=EXAMPLE,
    )
    parser.add_argument("--seed", type=int, default=0, help="which changes (default: 0)")
    parser.add_argument("--count", type=int, default=40, help="how many (default: 40)")
    parser.add_argument(
        "--only", default="", help="only in files whose path holds this, as answers/code"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=300,
        help="most that the tests of a change take; longer counts as noticed (default: 300)",
    )
    parser.add_argument("--json", action="store_true", help="print all changes as JSON")
    options = parser.parse_args()

    def report(change: Change, failed: str | None) -> None:
        place = f"src/s3dlm/{change.path}:{change.line}"
        outcome = "killed" if failed else "survived"
        line = f"{outcome:8}  {place}  {change.before}  →  {change.after}"
        print(
            " ".join(line.split("\n")), file=sys.stderr if options.json else sys.stdout, flush=True
        )

    found = survey(options.seed, options.count, options.only, options.seconds, report)
    killed = sum(failed is not None for _, failed in found)
    if options.json:
        rows = [{**asdict(change), "killed_by": failed} for change, failed in found]
        print(json.dumps({"seed": options.seed, "killed": killed, "changes": rows}, indent=1))
    else:
        print(f"{killed} of {len(found)} changes were noticed")


if __name__ == "__main__":
    main()
