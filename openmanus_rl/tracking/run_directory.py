"""A run's directory: where everything about it is, who holds it, and which one a new call continues.

config.yaml      the resolved config          metrics.jsonl        one object a step
versions.json    packages, commit, seeds      tensorboard/         the same for TensorBoard
events.jsonl     what happened, and when      learning_curve.png   the metrics as a picture
episodes/        what was played              env/                 logs of the environment servers
checkpoints/     what can be continued        summary.json         written last: the run is finished
"""

import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, TextIO

import yaml

from openmanus_rl.config.load import config_to_yaml
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.files import remove_unfinished, write_json, write_text
from openmanus_rl.tracking.checkpoints import has_checkpoints, is_disk_full, what_is_left
from openmanus_rl.tracking.events import EventLog
from openmanus_rl.tracking.versions import describe_versions


class RunPaths:
    """Where things are in a run directory. Looking needs no lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.versions = path / "versions.json"
        self.events = path / "events.jsonl"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.episodes = path / "episodes"
        self.checkpoints = path / "checkpoints"
        self.env_logs = path / "env"
        self.picture = path / "learning_curve.png"
        self.summary = path / "summary.json"


class RunDirectory(RunPaths):
    """A run directory that this process holds until `close`; the system frees it when the process dies."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for directory in (path, self.episodes, self.checkpoints, self.env_logs):
            directory.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(path)
        remove_unfinished(path)
        self.event_log = EventLog(self.events)

    @property
    def run_id(self) -> str | None:
        """What its checkpoints are known by; None for a run whose versions file does not say."""
        found: str | None = json.loads(self.versions.read_text()).get("run_id") if self.versions.exists() else None
        return found

    def begin(self, config: RunConfig, made_from: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write down what a new run is, and from which preset it was `made_from`.

        The config comes last: a directory that has one can be continued.
        """
        run_id = uuid.uuid4().hex[:12]
        write_json(self.versions, {"run_id": run_id, **describe_versions(), "seeds": {"run": config.trainer.seed}})
        self.log_event("started", **made_from)
        self.write_config(config)

    def write_config(self, config: RunConfig) -> None:
        write_text(self.config, config_to_yaml(config))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Call this last: a run with a summary is finished."""
        write_json(self.summary, dict(summary))

    def log_event(self, kind: str, **details: Any) -> None:
        """Append what happened to `events.jsonl`."""
        self.event_log.append(kind, **details)

    def rewind_events(self, count: int) -> None:
        """Forget what happened after the first `count` events, where a resumed run will live through it again."""
        was_finished = self.summary.exists()
        self.event_log.rewind(count, also_kept=frozenset({"finished"} if was_finished else ()))

    @contextmanager
    def ended_by_a_full_disk(self) -> Iterator[None]:
        """A full disk in the block is the user's to mend: it is said with what is left, not with a stack trace."""
        try:
            yield
        except Exception as error:
            if isinstance(error, UserError) or not is_disk_full(error, self.path):
                raise
            raise UserError(f"the disk with {self.path} is full ({error}).", what_is_left(self.checkpoints)) from error

    def close(self) -> None:
        """Let another run have the directory. Closing twice is fine."""
        self._lock.close()

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RunChoice(NamedTuple):
    """Which directory a run uses, and whether it goes on from a checkpoint there."""

    path: Path
    continues: bool


def choose_run_directory(root: Path, base_name: str, config: RunConfig, resume: str) -> RunChoice:
    """The directory for a run called `base_name`: an old one to continue, or a new one, which is made.

    - `auto`: the newest run of that name (`name`, `name-2`, …) with the same config that is unfinished; else a new one.
    - `never`: a new one.
    - anything else is the path of the run to continue, whatever its config was.
    """
    if resume not in ("auto", "never"):
        return RunChoice(existing_run(Path(resume)), continues=True)
    if resume == "auto":
        for _, path in sorted(_numbered_runs(root, base_name), reverse=True):
            if _can_continue(path, config):
                return RunChoice(path, continues=True)
    return RunChoice(_new_directory(root, base_name), continues=False)


def existing_run(path: Path) -> Path:
    """The path of a run that can go on, or an error that says why it cannot."""
    paths = RunPaths(path)
    if not paths.config.is_file():
        raise UserError(
            f"{path} is not a run directory: it has no config.yaml.",
            "trainer.resume is auto, never, or the path of a run directory such as runs/maze-grpo.",
        )
    if not has_checkpoints(paths.checkpoints):
        raise UserError(
            f"{path} cannot be continued: it has no checkpoint.", "Start a new run with trainer.resume=never."
        )
    return path


def _can_continue(path: Path, config: RunConfig) -> bool:
    paths = RunPaths(path)
    return (
        paths.config.is_file()
        and not paths.summary.exists()
        and _what_is_trained(paths.config.read_text()) == _what_is_trained(config_to_yaml(config))
    )


def _what_is_trained(config_yaml: str) -> Any:
    """The config without the key that only says how this call began."""
    tree = yaml.safe_load(config_yaml)
    tree.get("trainer", {}).pop("resume", None)
    return tree


def _numbered_runs(root: Path, base_name: str) -> list[tuple[int, Path]]:
    """`name` is number 1, `name-2` is 2, and so on."""
    if not root.is_dir():
        return []
    numbered = re.compile(re.escape(base_name) + r"(?:-(\d+))?")
    matches = ((numbered.fullmatch(path.name), path) for path in root.iterdir() if path.is_dir())
    return [(int(match[1] or 1), path) for match, path in matches if match]


def _new_directory(root: Path, base_name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    number = max((number for number, _ in _numbered_runs(root, base_name)), default=0) + 1
    while True:
        path = root / (base_name if number == 1 else f"{base_name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:  # another run was faster
            number += 1
        else:
            return path


def _hold(directory: Path) -> TextIO:
    """Lock the directory for this process; the file says who holds it."""
    lock = (directory / ".lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise UserError(
            f"{directory} is in use by another run (process {holder}).",
            "Wait until it ends, or start a run beside it with trainer.resume=never.",
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
