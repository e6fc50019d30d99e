"""Which card for LLaDA-8B, and how many searches at once: python -m tools.sizing [SECONDS]

Memory: the weights (2 bytes per parameter in bfloat16, 1 in int8, about half of one in int4) and 15 % on top.
More searches do not take more of it: a pass has as many canvases as fit, and the
others wait for the next. What they take is time: NFE × operations / (data-sheet peak × 0.3), so the searches
at once are those that all end within SECONDS, 60 by default. Nothing here was measured on these cards.
"""

from __future__ import annotations

import argparse

from s3dlm.evaluation.cost import CARDS, MODEL_SHAPES, UTILISATION
from s3dlm.settings import Settings

WEIGHTS = {
    "bfloat16": 2.0,
    "int8": 1.0,
    "int4": 0.53,
}  # bytes per parameter; int4 has scales per group
METHODS = ("baseline", "revise", "s3")
MODEL = "GSAI-ML/LLaDA-8B-Instruct"
SPARE = 1.15
MEMORY = {"A100": 80e9, "H100": 80e9, "L40S": 48e9, "RTX4090": 24e9}  # bytes


def rows(seconds: float) -> list[list[str]]:
    """One row per card: what fits, and per method the seconds of one search and how many
    searches at once end in time."""
    found = []
    shape = MODEL_SHAPES[MODEL]
    for card, peak in CARDS.items():
        needs = {name: size * shape.parameters * SPARE for name, size in WEIGHTS.items()}
        fits = [name for name, bytes_ in needs.items() if bytes_ < MEMORY[card]]
        cells = [card, fits[0] if fits else "none"]
        for method in METHODS:
            settings = Settings(method)
            one = settings.most_nfe * shape.operations(settings) / (peak * UTILISATION)
            cells.append(f"{one:.1f} s, {int(seconds / one)}")
        found.append(cells)
    return found


def table(seconds: float = 60.0) -> str:
    head = ["card", "weights that fit", *(f"`{name}`" for name in METHODS)]
    lines = [head, ["---"] * len(head), *rows(seconds)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=60.0, help="default: 60")
    print(table(parser.parse_args().seconds))
