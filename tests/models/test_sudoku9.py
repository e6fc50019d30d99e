"""The bundled model of 9×9 grids: its network, its puzzles as texts with holes, and their errors."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console

import s3dlm
from s3dlm.board import BLOCK, draw_search, pieces_of
from s3dlm.errors import ModelError, PromptError
from s3dlm.models.base import Model
from s3dlm.models.folder import BUNDLED
from s3dlm.models.transformer import Transformer
from s3dlm.search.methods import METHODS
from s3dlm.trace import read_trace, write_trace
from tests.fakes import events_of
from tests.models.checkpoints import edit_json
from tools.networks import initialise
from tools.sudoku9.__main__ import CONFIG

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
LINES = "\n".join(PUZZLE[row : row + 9] for row in range(0, 81, 9))
RULED = "\n".join(
    (" | ".join(" ".join(line[at : at + 3]) for at in (0, 3, 6)) + "\n------+-------+------" * (row in (2, 5)))
    for row, line in enumerate(LINES.split())
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Model:
    return s3dlm.load("sudoku9", device="cpu")


def test_it_is_small_and_knows_only_digits(model: Model) -> None:
    folder = BUNDLED["sudoku9"]
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2**20
    assert sum(tensor.numel() for _, tensor in model.denoiser.tensors()) == 208_572
    assert model.tokenizer.decode(range(10)) == "123456789."
    assert model.tokenizer.encode("5 3|.0_\n9") == [4, 2, 9, 9, 9, 8]
    assert model.denoiser.mask_id == 9
    assert not model.end_ids


def test_a_network_cannot_tell_cells_without_places_and_biases() -> None:
    network = Transformer(CONFIG)
    initialise(network, torch.Generator().manual_seed(0))
    network.requires_grad_(False)
    assert network.grid is not None
    network.grid.places.zero_()
    empty = torch.full((1, 81), 9)
    same = network.encode(empty)[0]
    assert torch.allclose(same, same[:1].expand_as(same), atol=1e-5)
    grids = empty.clone()
    grids[0, 0] = 4  # row 1, column 1, box 1
    network.grid.bias[:, :, 0] = 2.0  # only "same row" counts
    features = network.encode(grids)[0]
    assert torch.allclose(features[1], features[8], atol=1e-5)  # its row
    assert torch.allclose(features[9], features[80], atol=1e-5)  # everything else, and its box
    assert not torch.allclose(features[1], features[9], atol=1e-4)


def test_rows_and_configs_of_another_shape_are_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="have 81 cells"):
        model.denoiser.encode(torch.zeros(2, 80, dtype=torch.long))
    folder = shutil.copytree(BUNDLED["sudoku9"], tmp_path / "a")
    stated = (folder / "config.json").read_text()
    for change in ({"grid_order": 2}, {"grid_order": 99}, {"max_sequence_length": 162}):
        edit_json(folder / "config.json", **change)
        with pytest.raises(ModelError, match="grid"):
            s3dlm.load(str(folder), device="cpu")
        (folder / "config.json").write_text(stated)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_solves_an_easy_puzzle(model: Model, method: str) -> None:
    result = s3dlm.generate(model, PUZZLE, method=method)
    if method != "hex":  # whose short blocks go from left to right
        assert result.text == result.answer == SOLVED
    assert len(result.text) == 81
    assert result.task == "sudoku9_open"
    pairs = list(zip(result.text, PUZZLE, strict=True))
    assert all(new == old for new, old in pairs if old != ".")
    assert "".join(result.holes) == "".join(new for new, old in pairs if old == ".")


def test_a_puzzle_may_be_written_in_many_ways(model: Model) -> None:
    plain = s3dlm.generate(model, PUZZLE, method="s3", seed=3)
    for text in (PUZZLE.replace(".", "0"), LINES, RULED, f"Solve this Sudoku: {PUZZLE}"):
        assert s3dlm.generate(model, text, method="s3", seed=3).survivors == plain.survivors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PUZZLE[:-1], "has 80 cells, not 81"),
        (PUZZLE * 200, "has 16200 cells, not 81"),
        ("What is 2 + 2?", "cannot contain 'W'"),
        (PUZZLE[:-1] + "x", "cannot contain 'x'"),
        ("5" * 2 + PUZZLE[2:], "5 occurs twice in row 1"),
        (PUZZLE[:9] + "7" + PUZZLE[10:], "7 occurs twice in column 1"),
        (PUZZLE[:10] + "3" + PUZZLE[11:], "3 occurs twice in column 2"),
        (PUZZLE[:2] + "." * 8 + "5" + "." * 70, "5 occurs twice in box 1"),
        (SOLVED, "no empty cell"),
        ("", "empty"),
    ],
)
def test_a_wrong_puzzle_gives_one_clear_error(model: Model, text: str, message: str) -> None:
    with pytest.raises(PromptError, match=message) as caught:
        s3dlm.generate(model, text)
    assert len(str(caught.value)) < 400


def test_holes_may_be_written_out_and_must_make_a_grid(model: Model) -> None:
    known = "".join(f"{mark}" for mark in SOLVED[:75])
    assert s3dlm.infill(model, known + "[[6]]", method="baseline").text == SOLVED
    with pytest.raises(PromptError, match="has 80 tokens, but sudoku9 reads exactly 81"):
        s3dlm.infill(model, known + "[[5]]")
    with pytest.raises(PromptError, match="cannot contain 'x'"):
        s3dlm.infill(model, "x[[80]]")


def test_a_trace_tells_the_clues(model: Model, tmp_path: Path) -> None:
    settings, path = s3dlm.Settings.for_model(model, "s3"), tmp_path / "trace.jsonl"
    events = events_of(model, PUZZLE, settings=settings)
    list(write_trace(path, model, events, question=PUZZLE, settings=settings))
    given = [[-1 if mark == "." else int(mark) - 1 for mark in PUZZLE]]
    assert read_trace(path).header["given"] == given


def test_the_terminal_shows_grids_side_by_side_in_80_columns(model: Model) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    events = events_of(model, PUZZLE, method="s3", particles=3)
    list(draw_search(events, pieces_of(model), console=console, columns=model.tokenizer.columns))
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue()).splitlines()
    assert max(map(len, lines)) == 80
    assert "│ 6 7 2  1 9 5  3 4 8  6 7 2  1 9 5  3 4 8  6 7 2  1 9 5  3 4 8" in "\n".join(lines)
    assert BLOCK in "".join(lines)
