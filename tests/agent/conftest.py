from pathlib import Path

import pytest
from playing import build_obedient_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two models: `random`, and `obedient`, which answers as `playing.ANSWERS` says."""
    directory = tmp_path_factory.mktemp("models")
    build_obedient_model(directory)
    return directory
