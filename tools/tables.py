"""Move large tables of a page into CSV files beside it: `python -m tools.tables docs/appendix/PAGE.md …`.

Programs write pages with all their tables; a reader wants one page and the data apart. Every table of
at least `LEAST` rows becomes `PAGE-HEADING.csv`, and a link stands where it stood.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
from pathlib import Path

LEAST = 5  # rows below the head
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
LINK = re.compile(r"\]\(([\w-]+)\.csv\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def cells(line: str) -> list[str]:
    """The cells of a line, without the marks of bold text."""
    parts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [part.strip().replace("**", "").replace("\\|", "|") for part in parts]


def move(page: Path) -> int:
    """Move the large tables of one page; how many there were."""
    text = page.read_text(encoding="utf-8")
    moved = LINK.findall(text)  # an earlier run's

    def link(match: re.Match[str]) -> str:
        lines = match[0].splitlines()
        if len(lines) < LEAST + 2:
            return match[0]
        *_, heading = ["", *HEADING.findall(text[: match.start()])]
        slug = "-".join(re.findall(r"[a-z0-9]+", heading.lower())[:4])
        name = slug if slug.startswith(page.stem) else f"{page.stem}-{slug}"
        names = (f"{name}-{number}" if number > 1 else name for number in itertools.count(1))
        moved.append(next(free for free in names if free not in moved))
        head, _, *rows = map(cells, lines)
        with (page.parent / f"{moved[-1]}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows])
        return f"[{moved[-1]}.csv]({moved[-1]}.csv): {', '.join(filter(None, head[:8]))}; {len(rows)} rows.\n"

    page.write_text(TABLE.sub(link, text), encoding="utf-8")
    return len(moved) - len(LINK.findall(text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="+")
    for page in parser.parse_args().pages:
        print(f"{page}: {move(page)} tables moved")
