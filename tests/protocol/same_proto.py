"""Whether two protos are the same to the last bit, without the package's own idea of equality."""

import numpy as np
import torch

from openmanus_rl.protocol import DataProto


def example(rows: int = 6, **meta_info: object) -> DataProto:
    """Rows that can be told apart: row i has i in `obs`, `long[:, 0]` and `label`."""
    return DataProto.from_dict(
        {"obs": torch.arange(rows), "long": torch.arange(rows).reshape(-1, 1).repeat(1, 4)},
        {"label": [f"row{i}" for i in range(rows)]},
        meta_info,
    )


def labels(data: DataProto) -> list[str]:
    return data.non_tensor_batch["label"].tolist()


def assert_same(first: DataProto, second: DataProto) -> None:
    assert type(first) is type(second)
    assert len(first) == len(second)
    assert (first.batch is None) == (second.batch is None)
    if first.batch is not None:
        assert set(first.batch.keys()) == set(second.batch.keys())
        for key in first.batch.keys():  # noqa: SIM118 (iterating a TensorDict yields rows)
            _assert_same_tensor(first.batch[key], second.batch[key])
    assert first.non_tensor_batch.keys() == second.non_tensor_batch.keys()
    for key, array in first.non_tensor_batch.items():
        _assert_same_array(array, second.non_tensor_batch[key])
    assert first.meta_info == second.meta_info


def _assert_same_tensor(first: torch.Tensor, second: torch.Tensor) -> None:
    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    assert torch.equal(*bits)


def _assert_same_array(first: np.ndarray, second: np.ndarray) -> None:
    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    assert [repr(value) for value in first.flat] == [repr(value) for value in second.flat]
