"""A tiny model on disk, built once: what most tests of this room need."""

from pathlib import Path

import pytest
from tiny_corpus import CORPUS

from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    build_tiny_model(directory, CORPUS, TinyModelSpec(), seed=0)
    return directory
