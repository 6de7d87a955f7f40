"""The runs below a directory, by name."""

import os
from pathlib import Path
from threading import Lock

from openmanus_rl.errors import UserError
from openmanus_rl.tracking.run_directory import RunPaths
from openmanus_rl.viewer.run import RunView


class Workspace:
    """A run, or a directory of runs; runs that are started while it is open are found too."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UserError(f"there is no directory {root}.", "Name a run such as runs/maze-grpo, or runs.")
        self.root = root.resolve()
        self.is_one_run = is_run(self.root)
        self._views: dict[str, RunView] = {}
        self._lock = Lock()

    def names(self) -> list[str]:
        """The runs that are there now."""
        if self.is_one_run:
            return [self.root.name]
        return sorted(name for name in self._listed() if is_run(self.root / name))

    def run(self, name: str) -> RunView:
        """The run of this name; only what is listed can be asked for, so no name leads out of the directory."""
        path = self.root if self.is_one_run else self.root / name
        is_there = name == self.root.name if self.is_one_run else name in self._listed()
        with self._lock:
            if not is_there or not is_run(path):
                self._views.pop(name, None)
                raise UserError(f"there is no run {name} in {self.root}.")
            if name not in self._views:
                self._views[name] = RunView(path)
            return self._views[name]

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self.root)
        except OSError as error:
            raise UserError(f"{self.root} cannot be read: {error.strerror}.") from error


def is_run(path: Path) -> bool:
    """Whether a directory looks like a run's, or holds files of episodes; one that nobody may look into does not."""
    paths = RunPaths(path)
    try:
        if paths.config.is_file() or paths.metrics.is_file() or paths.episodes.is_dir():
            return True
        return next(path.glob("*step_*.jsonl"), None) is not None
    except OSError:
        return False
