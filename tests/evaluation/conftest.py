"""What tests of evaluation share."""

from pathlib import Path

import pytest

from tests.models.checkpoints import LLADA, edit_json, llada_tensors, write_folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint that has LLaDA's shape but not its size."""
    config = LLADA | {"max_sequence_length": 4096, "n_layers": 1}
    folder = tmp_path_factory.mktemp("models") / "a-folder-of-another-name"
    write_folder(folder, config, llada_tensors(config))
    edit_json(folder / "tokenizer_config.json", model_max_length=4096)
    return folder
