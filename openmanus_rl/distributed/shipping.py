"""How code and tensors travel between processes: a user's class with its source, tensors at the price of a copy."""

import pickle
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ray.cloudpickle
import torch
from ray.util.serialization import register_serializer

from openmanus_rl.protocol.storage import pack_tensor, unpack_tensor


def packed_class(worker_cls: type) -> bytes:
    """A class that any process can open: by name where it is installed, else with its code.

    What a class in a user's file imports has to be importable where it is opened; the file itself does not.
    """
    module = sys.modules.get(worker_cls.__module__)
    if module is None or _is_installed(module):
        return ray.cloudpickle.dumps(worker_cls)
    ray.cloudpickle.register_pickle_by_value(module)
    try:
        return ray.cloudpickle.dumps(worker_cls)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    """Whether the module comes with the package, its dependencies or Python, and so is on every machine.

    What is in no file, or in `__main__`, travels with its code in any case.
    """
    if module.__name__ == "__main__" or module.__name__.partition(".")[0] == __name__.partition(".")[0]:
        return True
    places = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib", "stdlib")]
    file = getattr(module, "__file__", None)
    return file is None or any(Path(file).is_relative_to(place) for place in places)


def ship_tensors_as_memory() -> None:
    """Have Ray send tensors as their memory. Its own way copies several times.

    Whoever reads one gets a copy: the memory of the object store is shared, and writing to it kills the process.
    """
    register_serializer(torch.Tensor, serializer=_recipe, deserializer=_followed)


def _recipe(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """A function that makes the tensor again, and its arguments."""
    packed = pack_tensor(tensor, pickle.HIGHEST_PROTOCOL)
    if packed is not tensor:
        return unpack_tensor, (packed,)
    function, arguments = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # nested and sparse ones: torch's own way
    return function, arguments


def _followed(recipe: tuple[Callable[..., torch.Tensor], tuple[Any, ...]]) -> torch.Tensor:
    function, arguments = recipe
    return function(*arguments)
