"""Names to things: what a config string such as `grpo` or `my_module:my_reward` stands for."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from openmanus_rl.errors import UserError, close_name, did_you_mean

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A read-only mapping for users; `register` adds to it, `lookup` also takes `module:name`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: `@registry.register("name")`. A name is given once."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"the {self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def lookup(self, name: str) -> T:
        """The entry called `name`, or a user's own at `module:name`."""
        if ":" in name:
            loaded: T = load_object(name, self.kind)
            return loaded
        if name not in self._entries:
            raise UserError(
                f"there is no {self.kind} called {name!r}. {close_name(name, self._entries)}".rstrip(),
                f"Known: {', '.join(sorted(self._entries))}; your own is given as module:name.",
            )
        return self._entries[name]

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load_object(spec: str, kind: str) -> Any:
    """Import `module:name` or `path/to/file.py:name`; the current directory is importable."""
    module_name, _, attribute = spec.rpartition(":")
    try:
        if module_name.endswith(".py"):
            module = _load_file(Path(module_name))
        else:
            if str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(module_name)
    except UserError:
        raise
    except Exception as error:  # whatever the user's own code does while it is imported
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"cannot import the {kind} {spec!r}: {type(error).__name__}: {error}",
            f"In {where.filename}:{where.lineno}." if not isinstance(error, ImportError | FileNotFoundError) else "",
        ) from error
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UserError(
            f"{module_name} has no {attribute!r}. {did_you_mean(attribute, public)}",
            f"The {kind} was given as {spec!r}.",
        )
    return getattr(module, attribute)


def _load_file(path: Path) -> Any:
    name = f"{path.stem} of {path.resolve().parent}"  # a file called json.py is not the module json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no Python file at {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
