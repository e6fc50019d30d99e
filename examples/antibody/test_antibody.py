"""Search on weights that nobody here trained: Sapiens from PyPI, filling loops of antibodies."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
import torch

import s3dlm
from examples.antibody import compare, models, report
from examples.antibody.frameworks import TEST, TUNING
from examples.antibody.rules import Rules, violations

CHAIN = TEST[0].chain
# The example in Sapiens' own README, with the probabilities of A, C, D and E that it shows.
MURINE = (
    "**QLV*SGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDD"
    "TAVYYCARRDYRFDMGFDYWGQGTTVTVSS"
)
SHOWN = [
    [0.003272, 0.004147, 0.004011, 0.004590],
    [0.012038, 0.003854, 0.006803, 0.008174],
    [0.003384, 0.003895, 0.003726, 0.004068],
    [0.004612, 0.005325, 0.004443, 0.004641],
    [0.005519, 0.003664, 0.003555, 0.005269],
]


weights = pytest.mark.skipif(
    not list(distributions(name="sapiens")), reason="pip install --no-deps sapiens"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def sapiens(cache: Path) -> s3dlm.Model:
    return models.load("sapiens", cache)


@pytest.fixture(scope="module")
def plain(sapiens: s3dlm.Model, cache: Path) -> s3dlm.Model:
    return s3dlm.load(str(cache / "sapiens"), device="cpu")


@weights
@torch.inference_mode()
def test_sapiens_says_what_its_authors_show(plain: s3dlm.Model) -> None:
    ids = plain.tokenizer.chat(MURINE.replace("*", "<mask>"))
    probability = plain.denoiser.encode(torch.tensor([ids])).softmax(-1)[0, 1:6, 4:8]
    np.testing.assert_allclose(probability, SHOWN, atol=1e-6)


@weights
@torch.inference_mode()
def test_the_loop_stands_in_the_hole_whatever_the_padding(
    sapiens: s3dlm.Model, plain: s3dlm.Model
) -> None:
    before, after = CHAIN.split("_")
    whole = plain.tokenizer.chat(before + "<mask>" * 11 + after)
    expected = plain.denoiser.encode(torch.tensor([whole]))[0, len(before) + 1 :][:11]
    prompt = sapiens.tokenizer.chat(CHAIN)
    row = torch.tensor([[*prompt, *[sapiens.denoiser.mask_id] * 11, 0, 0, 0]])
    keys = torch.arange(row.shape[1])[None] < row.shape[1] - 3
    found = sapiens.denoiser.encode(row, keys)[0, len(prompt) :][:11]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("loop", "broken", "spans"),
    [
        ("ARDLAYFDY", [], []),
        ("ARNGSYFDY", ["deamidation", "glycosylation"], [(2, 4), (2, 5)]),
        ("ARDGAYFDY", ["isomerisation"], [(2, 4)]),
        ("ARDPAYFTS", ["cleavage"], [(2, 4), (7, 9)]),
        ("ARDLCYFDY", ["cysteine"], [(4, 5)]),
        ("CRDLCYFDY", [], []),  # two cysteines can pair
        ("ARDLMYFDY", ["oxidation"], [(4, 5)]),
        ("ARDVVYFDY", ["unspecific binding"], [(3, 5)]),
        ("ARKLAYFAY", ["charge"], [(1, 2), (2, 3)]),
    ],
)
def test_a_rule_and_the_residues_it_blames(
    loop: str, broken: list[str], spans: list[tuple[int, int]]
) -> None:
    found = dict(violations(CHAIN, loop))
    del found["hydrophobicity"]  # has a test of its own
    assert sorted(rule for rule, (far, _) in found.items() if far) == broken
    assert sorted({span for _, own in found.values() for span in own}) == spans


def test_all_rules_kept_is_the_score_at_which_a_search_ends() -> None:
    score = Rules().score(CHAIN, "ARDLAYFDYYA")
    assert score.total == Rules.satisfied_at
    assert not score.spans
    assert Rules().score(CHAIN, "ARDLMYFDYYA").total < 1


def test_hydrophobic_residues_are_blamed_where_there_are_too_many() -> None:
    far, spans = dict(violations(CHAIN, "ALDLLYFDY"))["hydrophobicity"]
    assert far > 0
    assert spans == [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7)]


def test_a_motif_that_begins_in_the_framework_counts() -> None:
    assert dict(violations("AAN_WGQG", "GAA"))["deamidation"] == (1, [(0, 1)])
    assert dict(violations("AAA_WGQG", "AAA"))["oxidation"] == (0, [])


def test_no_loop_is_both_tuned_on_and_reported() -> None:
    assert len({one.name for one in TEST}) == 200
    assert not {one.chain.split("_")[0] for one in TEST} & {
        one.chain.split("_")[0] for one in TUNING
    }
    assert all(set(one.chain) <= {*models.RESIDUES, "_"} for one in [*TEST, *TUNING])


@weights
def test_re_masking_satisfies_the_verifier_where_restarts_do_not(sapiens: s3dlm.Model) -> None:
    loops = TUNING[-5:]  # the longest
    found = {method: list(compare.fill(sapiens, method, loops)) for method in ("verified", "moves")}
    for record in [*found["verified"], *found["moves"]]:
        length = int(record["loop"].split("/")[1])
        assert len(record["text"]) == length
        assert set(record["text"]) <= set(models.RESIDUES)
        assert record["nfe"] <= compare.BUDGET
    kept = {method: sum(one["score"] == 1 for one in own) for method, own in found.items()}
    assert kept["moves"] > kept["verified"]


@weights
def test_a_comparison_resumes_and_is_judged_and_reported(
    sapiens: s3dlm.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, methods = tmp_path / "sapiens", ["verified_batch", "moves"]
    folder.mkdir()
    compare.run(sapiens, folder, methods, TUNING[:1])
    with (folder / "moves.jsonl").open("a") as file:
        file.write('{"cut off')  # as a run leaves it that was killed
    compare.run(sapiens, folder, methods, TUNING[:2])
    assert "moves: 1 loops filled, 1 were there" in capsys.readouterr().out
    compare.judge(sapiens, folder, methods, TUNING[:2])
    found = report.results(folder)
    assert {method: len(own) for method, own in found.items()} == {"verified_batch": 2, "moves": 2}
    loops = [one.name for one in TUNING[:2]]
    text = report.table(found, loops, "itself")
    assert "| re-masking, doubted residues | " in text
    assert all(one["pll"] < 0 for one in found["moves"].values())
