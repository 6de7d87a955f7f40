"""Roles to worker classes: any class made with `(model_dir, config)` whose methods are marked with `@dispatch`.

`@worker("actor")` makes a class the default of a role; a user's own is named in the config as `file.py:Class`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from openmanus_rl.errors import UserError
from openmanus_rl.registry import Registry

WORKERS: Registry[type] = Registry("worker class")

Class = TypeVar("Class", bound=type)


def worker(role: str) -> Callable[[Class], Class]:
    """Decorator: make a class the default of a role."""

    def add(worker_cls: Class) -> Class:
        WORKERS.register(role)(worker_cls)
        return worker_cls

    return add


@cache
def find_worker(name: str) -> type[Any]:
    """The class of a role, or a user's own as `module:Class` or `file.py:Class`. A user's file is run once."""
    found = WORKERS.lookup(name)
    if not isinstance(found, type):
        raise UserError(f"{name} is not a class.", "A worker is a class that is made with (model_dir, config).")
    return found
