"""What it costs to score a program: with and without running it, and when it was seen before.

    python benchmarks/code_verifier.py [--problems 164]

Over HumanEval (extra `code`): for every problem the reference solution, a wrong one, one with an
undefined name, the reference cut off at a quarter, half and three quarters, and the reference again in
other wrapping. Wall-clock time per text, median and mean; programs are run one at a time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

from s3dlm.extras.code.sandbox import shared
from s3dlm.extras.code.tasks import from_package
from s3dlm.extras.code.verifier import CodeVerifier


def texts(body: str) -> Iterator[tuple[str, str]]:
    """Kinds of text a search meets, in an order in which the last is a repetition."""
    yield "right", body
    yield "wrong", "    return 'something else'\n"
    yield "undefined name", f"    undefined_name()\n{body}"
    for share in (0.25, 0.5, 0.75):
        yield "cut off", body[: int(len(body) * share)]
    yield "seen before", f"{body}\n\nprint('done')\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=164)
    rows = list(from_package())[: parser.parse_args().problems]
    verifier = CodeVerifier()
    shared().evaluate("", ["1"])  # the launcher's start is paid once per process
    spent: dict[str, list[float]] = {}
    totals: dict[str, list[float]] = {}
    for row in rows:
        for kind, text in texts(str(row["canonical_solution"])):
            ran, started = verifier.executed, time.perf_counter()
            score = verifier.score(str(row["prompt"]), text)
            label = f"{kind}, {'run' if verifier.executed > ran else 'not run'}"
            for name in (label, "all"):
                spent.setdefault(name, []).append(1000 * (time.perf_counter() - started))
                totals.setdefault(name, []).append(score.total)
    print(f"{'text':26}{'texts':>7}{'median ms':>11}{'mean ms':>9}{'mean score':>12}")
    for name in sorted(spent):
        some = spent[name]
        print(
            f"{name:26}{len(some):7}{statistics.median(some):11.2f}{statistics.fmean(some):9.2f}"
            f"{statistics.fmean(totals[name]):12.2f}"
        )


if __name__ == "__main__":
    main()
