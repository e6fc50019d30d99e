"""The worked examples of the paper's appendix, and by name the two that break their own rules."""

import pytest

from s3dlm.verifier import for_task
from s3dlm.verifier.components import arithmetic, non_degeneracy, reachability, structure
from s3dlm.verifier.parsed import ParsedText

FULL = r"Step 1: subtract 5: $3x=9$. Therefore $x=3$. \boxed{3}"
REPEATED = "the answer is 42 the answer is 42 the answer is 42"
ENDED = "one two three four five six seven eight nine ten<|eot_id|>" + "<|endoftext|>" * 90
EXAMPLES = {
    "a full solution": (structure, FULL, 1.0),
    "a bare digit": (structure, "3", 0.25),
    "vacuous keywords fool it": (structure, r"step step therefore \boxed{42}", 0.867),
    "two true equalities": (arithmetic, r"$12 \times 4 = 48$, then $48 + 7 = 55$", 1.0),
    "no equality": (arithmetic, "There are no sums here.", 0.5),
    "breaks its rule S2: the paper says 0.5, but both equalities are wrong":
        (arithmetic, r"$12 \times 4 = 50$, then $50 + 7 = 55$", 0.0),
    "a computed answer": (reachability, r"We compute $6\times 7=42$. The answer is \boxed{42}", 1.0),
    "an answer from nowhere": (reachability, r"\boxed{42}", 0.3),
    "no answer": (reachability, "We compute 6*7", 0.2),
    "an incidental mention fools it": (reachability, r"this is not 42 \boxed{42}", 1.0),
    "breaks its rule S5: the paper says 0.3, but 12 words are not more than 12, and 4 of 11 bigrams differ":
        (non_degeneracy, REPEATED, 1.0),
    "a flood of end tokens inside the text": (non_degeneracy, "<|endoftext|> word " * 20 + "the end", 0.0),
    "a trailing run is how a diffusion model stops": (non_degeneracy, ENDED, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_paper(name):
    part, text, value = EXAMPLES[name]
    assert part(ParsedText("", text)) == pytest.approx(value, abs=0.005)


def test_the_countdown_example_of_the_paper():
    prompt = "Target: 952 Numbers: 100, 75, 50, 25, 6, 3"
    solved = for_task("countdown").score(prompt, r"\boxed{((100 + 6) * 3 * 75 - 50) / 25}")
    assert solved.parts["constraint"] == pytest.approx(1.0)
