import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "agent"))

from training_cases import build_model, play_rows

from openmanus_rl.protocol import DataProto


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "random"
    build_model(directory)
    return directory


@pytest.fixture(scope="session")
def played_rows(model_dir: Path) -> DataProto:
    return play_rows(model_dir)


@pytest.fixture
def batch(played_rows: DataProto) -> DataProto:
    """Rows of six episodes, one of two segments, with all columns that an update reads."""
    return DataProto.from_dict(
        {name: column.clone() for name, column in played_rows.batch.items()},
        dict(played_rows.non_tensor_batch),
    )
