"""Nine rules of antibody developability that can be computed from the sequence, as a verifier.

The motifs are those of high and medium risk in published lists: chemical liabilities as in LAP
(Satława et al. 2024) and motifs of unspecific binding (Kelly et al. 2018). The last two rules keep
net charge and hydrophobicity of the loop within a range; that positive and hydrophobic loops bind
where they should not is published (Rabia et al. 2018, Sharma et al. 2014), the bounds for a single
loop are ours. A motif counts if it touches the loop, so one that begins in the framework counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from s3dlm import Score, Verifier

MOTIFS = {
    "glycosylation": r"N[^P][ST]",
    "deamidation": r"N[AGHNST]",
    "isomerisation": r"D[DGHST]",
    "cleavage": r"DP|NP|TS",
    "oxidation": r"[MW]",
    "unspecific binding": r"GG|RR|VG|VV|WW|W.W",
}
CHARGE = {"K": 1, "R": 1, "D": -1, "E": -1}
CHARGES = (-2, 0)
HYDROPATHY = {  # Kyte and Doolittle 1982
    "A": 1.8, "C": 2.5, "D": -3.5, "E": -3.5, "F": 2.8, "G": -0.4, "H": -3.2, "I": 4.5, "K": -3.9, "L": 3.8,
    "M": 1.9, "N": -3.5, "P": -1.6, "Q": -3.5, "R": -4.5, "S": -0.8, "T": -0.7, "V": 4.2, "W": -0.9, "Y": -1.3,
}  # fmt: skip
HYDROPATHIES = (-1.0, 0.0)
Span = tuple[int, int]


class Rules(Verifier):
    """Scores a loop by the share of rules it keeps, with a little for a near miss; 1 is all."""

    name = "developability"
    satisfied_at = 1.0

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        found = dict(violations(prompt, text))
        parts = {rule: 1 / (1 + misses) for rule, (misses, _) in found.items()}
        spans = sorted({span for _, spans in found.values() for span in spans})
        return Score(sum(parts.values()) / len(parts), parts, spans)


def violations(chain: str, loop: str) -> Iterator[tuple[str, tuple[float, list[Span]]]]:
    """Of every rule, how far the loop is from keeping it, and which of its residues are to blame."""
    before, _, after = chain.partition("_")
    for rule, pattern in MOTIFS.items():
        spans = list(_motifs(pattern, before[-2:], loop, after[:2]))
        yield rule, (len(spans), spans)
    cysteines = [(i, i + 1) for i, residue in enumerate(loop) if residue == "C"]
    unpaired = len(cysteines) % 2
    yield "cysteine", (unpaired, cysteines * unpaired)
    yield "charge", _outside(loop, {r: CHARGE.get(r, 0) for r in HYDROPATHY}, CHARGES, mean=False)
    yield "hydrophobicity", _outside(loop, HYDROPATHY, HYDROPATHIES, mean=True)


def _motifs(pattern: str, before: str, loop: str, after: str) -> Iterator[Span]:
    """Motifs that touch the loop, overlapping ones too, as ranges of the loop."""
    text, first, size = before + loop + after, len(before), len(loop)
    for match in re.finditer(f"(?=({pattern}))", text):
        start, stop = match.span(1)
        if start < first + size and stop > first:
            yield max(start - first, 0), min(stop - first, size)


def _outside(
    loop: str, scale: dict[str, float], bounds: tuple[float, float], *, mean: bool
) -> tuple[float, list[Span]]:
    """How far a sum or mean lies outside its bounds; residues on the wrong side are to blame."""
    values = [scale.get(residue, 0.0) for residue in loop]
    total = sum(values) / (len(values) if mean else 1)
    low, high = bounds
    if low <= total <= high:
        return 0.0, []
    sign = 1 if total > high else -1
    blamed = [(i, i + 1) for i, value in enumerate(values) if value * sign > 0]
    return (total - high if sign > 0 else low - total), blamed
