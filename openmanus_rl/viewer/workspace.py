"""The runs below a directory, by name."""

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
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and is_run(path))

    def run(self, name: str) -> RunView:
        """The run of this name; only what is listed can be asked for, so no name leads out of the directory."""
        if name not in self.names():
            raise UserError(f"there is no run {name} in {self.root}.")
        with self._lock:
            if name not in self._views:
                self._views[name] = RunView(self.root if self.is_one_run else self.root / name)
            return self._views[name]


def is_run(path: Path) -> bool:
    """Whether a directory looks like a run's, or holds files of episodes."""
    paths = RunPaths(path)
    if paths.config.is_file() or paths.metrics.is_file() or paths.episodes.is_dir():
        return True
    return next(path.glob("*step_*.jsonl"), None) is not None
