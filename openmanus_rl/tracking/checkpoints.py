"""Checkpoints that are whole or not there: a kill at any moment leaves one that loads.

`CheckpointStore` writes them for the run that owns the directory; `latest_checkpoint` only reads.
What a checkpoint holds is the caller's business. A manifest with the size and checksum of every file proves it whole,
and says which run it is of and what validation found at its step.
"""

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmanus_rl.errors import UserError
from openmanus_rl.files import flush, write_json

MANIFEST = "manifest.json"
_NAME = re.compile(r"step_(\d{6,})")
# Directories with these prefixes are what a kill left behind.
_SAVING, _REPLACED, _REMOVING = ".saving_", ".replaced_", ".removing_"
_FULL_DISK = 1 << 20  # bytes; a disk with less is taken for full

Stage = Callable[[Path], Callable[[], None]]
"""Takes a copy of what a checkpoint is to hold; what it returns completes the files in the given directory."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was verified. `skipped` says why newer ones were passed over."""

    step: int
    path: Path
    skipped: tuple[str, ...] = ()


class CheckpointStore:
    """The checkpoints of one run, written while it goes on. Only the run that holds its lock may make one.

    The last `keep` stay, and the one with the highest success.
    """

    def __init__(self, directory: Path, keep: int, run_id: str | None = None) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint is kept, not {keep}")
        self.directory = directory
        self.keep = keep
        self.run_id = run_id
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._clean_up()

    def save(self, step: int, stage: Stage, success: float | None = None) -> None:
        """Begin the checkpoint of `step`, for which validation found `success`, if it was measured there.

        `stage` is called at once; the rest happens beside the caller, who learns of a failure from the next call here.
        The checkpoint is there under its name once all of it is on the disk. A save at `step` says that the run now
        stands there: checkpoints of later steps, which were damaged or given up, are removed.
        """
        self.wait()
        aside = self.directory / f"{_SAVING}{_name(step)}"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            complete = stage(aside)
        except Exception as error:
            raise self._explained(step, error) from error
        manifest = {"step": step, "run": self.run_id, "success": success}
        self._under_way = self._thread.submit(self._finish, manifest, aside, complete)

    def check(self) -> None:
        """Raise what went wrong in the save under way, if something did so far."""
        if self._under_way is not None and self._under_way.done():
            self.wait()

    def wait(self) -> None:
        """Until the save under way has ended; what went wrong in it is raised."""
        if self._under_way is not None:
            ended, self._under_way = self._under_way, None
            ended.result()

    def latest(self) -> Checkpoint | None:
        """See `latest_checkpoint`; a save that is under way is waited for."""
        self.wait()
        return latest_checkpoint(self.directory, self.run_id)

    def close(self) -> None:
        """Wait for the save under way. Call it on every way out: what went wrong there is raised."""
        self._thread.shutdown(wait=True)
        self.wait()

    def _finish(self, manifest: dict[str, Any], aside: Path, complete: Callable[[], None]) -> None:
        try:
            complete()
            _seal(aside, manifest)
            self._put_in_place(aside, self.directory / _name(manifest["step"]))
            self._forget_others(manifest["step"])
        except Exception as error:
            raise self._explained(manifest["step"], error) from error

    def _explained(self, step: int, error: Exception) -> Exception:
        """The user's error that a failed save is, or `error` itself if that is ours; what was half made is removed."""
        is_full = is_disk_full(error, self.directory)
        self._clean_up()
        if not (is_full or isinstance(error, OSError)):
            return error
        reason = "the disk is full" if is_full else str(error)
        return UserError(
            f"the checkpoint of step {step} could not be written to {self.directory}: {reason}.",
            what_is_left(self.directory),
        )

    def _put_in_place(self, aside: Path, final: Path) -> None:
        """Rename; a checkpoint of the same step that is replaced stays until the new one is there."""
        replaced = self.directory / f"{_REPLACED}{final.name}"
        if final.exists():
            final.rename(replaced)
        aside.rename(final)
        flush(self.directory)
        shutil.rmtree(replaced, ignore_errors=True)

    def _forget_others(self, newest: int) -> None:
        past = {step: path for step, path in _checkpoints(self.directory) if step <= newest}
        kept = set(sorted(past)[-self.keep :]) | set(_best(past))
        for step, path in _checkpoints(self.directory):
            if step not in kept:
                # Renamed first, so that a half-removed directory is never taken for a damaged checkpoint.
                doomed = path.rename(path.with_name(f"{_REMOVING}{path.name}"))
                shutil.rmtree(doomed)

    def _clean_up(self) -> None:
        """Remove what killed saves left; a checkpoint that was moved away to be replaced comes back."""
        for path in self.directory.glob(f"{_REPLACED}*"):
            final = self.directory / path.name.removeprefix(_REPLACED)
            if not final.exists():
                path.rename(final)
        for prefix in (_SAVING, _REPLACED, _REMOVING):
            for path in self.directory.glob(f"{prefix}*"):
                shutil.rmtree(path)


def latest_checkpoint(directory: Path, run_id: str | None = None) -> Checkpoint | None:
    """The newest checkpoint that is whole and, where `run_id` is known, of that run; None if there is none at all.

    Others are passed over, and the result says why. If there are only such, that is an error: starting anew in silence
    would look like continuing.
    """
    skipped: list[str] = []
    for step, path in sorted(_checkpoints(directory), reverse=True):
        reason = find_damage(path) or _find_stranger(path, run_id)
        if reason is None:
            return Checkpoint(step, path, tuple(skipped))
        skipped.append(f"{path.name}: {reason}")
    if skipped:
        raise UserError(
            f"no checkpoint in {directory} can be used ({'; '.join(skipped)}).",
            "Start a new run with trainer.resume=never.",
        )
    return None


def best_checkpoint(directory: Path) -> Checkpoint | None:
    """The whole checkpoint with the highest success, the newest of equals; None if success was measured at none."""
    whole = {step: path for step, path in _checkpoints(directory) if find_damage(path) is None}
    return next((Checkpoint(step, whole[step]) for step in _best(whole)), None)


def what_is_left(directory: Path) -> str:
    """What somebody whose run ended can do about it."""
    steps = [step for step, _ in _checkpoints(directory)]
    if not steps:
        return "There is no earlier checkpoint. Mend that and start again."
    return f"The checkpoint of step {max(steps)} is untouched. Mend that, then continue from it."


def has_checkpoints(directory: Path) -> bool:
    """Whether there is a checkpoint, whole or not."""
    return any(_checkpoints(directory))


def read_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself: `step`, `run`, `success` and `files`."""
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    return manifest


def find_damage(path: Path) -> str | None:
    """What differs between the files of a checkpoint and its manifest; None if it is whole."""
    try:
        expected = read_manifest(path)["files"]
    except FileNotFoundError:
        return f"it has no {MANIFEST}"
    except (json.JSONDecodeError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read"
    for name, entry in expected.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        size = file.stat().st_size
        if size != entry["bytes"]:
            return f"{name} has {size} bytes instead of {entry['bytes']}"
        if _checksum(file) != entry["crc32"]:
            return f"the content of {name} has changed"
    return None


def _find_stranger(path: Path, run_id: str | None) -> str | None:
    """Why a whole checkpoint is not one of the run's, if it says so."""
    manifest = read_manifest(path)
    if path.name != _name(manifest["step"]):
        return f"it is of step {manifest['step']}"
    owner = manifest.get("run")
    return f"it is of another run ({owner})" if run_id and owner and owner != run_id else None


def _best(checkpoints: Mapping[int, Path]) -> list[int]:
    """The step with the highest success, the latest of equals; none if it is known of none."""
    success: dict[int, float] = {}
    for step, path in checkpoints.items():
        try:
            found = read_manifest(path).get("success")
        except (OSError, json.JSONDecodeError):  # damaged, which is for whoever loads it to say
            continue
        if found is not None:
            success[step] = found
    return [max(success, key=lambda step: (success[step], step))] if success else []


def is_disk_full(error: BaseException, directory: Path) -> bool:
    """torch and safetensors report a full disk by errors of their own, torch even without saying so."""
    return "No space left" in str(error) or shutil.disk_usage(directory).free < _FULL_DISK


def _seal(directory: Path, manifest: dict[str, Any]) -> None:
    """Flush every file and write down what a whole checkpoint consists of."""
    files: dict[str, dict[str, int]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            flush(path)
            name = path.relative_to(directory).as_posix()
            files[name] = {"bytes": path.stat().st_size, "crc32": _checksum(path)}
        else:
            flush(path)
    write_json(directory / MANIFEST, {**manifest, "files": files})


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _name(step: int) -> str:
    return f"step_{step:06d}"


def _checkpoints(directory: Path) -> Iterator[tuple[int, Path]]:
    if directory.is_dir():
        for path in list(directory.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match and path.is_dir():
                yield int(match[1]), path
