"""Checkpoints that are whole or not there: a kill at any moment leaves one that loads.

`CheckpointStore` writes them for the run that owns the directory; `latest_checkpoint` only reads.
What a checkpoint holds is the caller's business. A manifest with the size and checksum of every file proves it whole.
"""

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openmanus_rl.errors import UserError
from openmanus_rl.files import flush, write_json

MANIFEST = "manifest.json"
_NAME = re.compile(r"step_(\d{6,})")
# Directories with these prefixes are what a kill left behind.
_SAVING, _REPLACED, _REMOVING = ".saving_", ".replaced_", ".removing_"
_FULL_DISK = 1 << 20  # bytes; a disk with less is taken for full


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was just written or verified. `skipped` says why newer ones were passed over."""

    step: int
    path: Path
    skipped: tuple[str, ...] = ()


class CheckpointStore:
    """The checkpoints of one run, of which the last `keep` stay. Only the run that holds its lock may make one."""

    def __init__(self, directory: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint is kept, not {keep}")
        self.directory = directory
        self.keep = keep
        directory.mkdir(parents=True, exist_ok=True)
        self._clean_up()

    def save(self, step: int, write: Callable[[Path], None]) -> Checkpoint:
        """Let `write` fill a directory, and make it the checkpoint of `step` once it is on the disk.

        A save at `step` says that the run now stands there: checkpoints of later steps, which were damaged or given
        up, are removed.
        """
        final = self.directory / _name(step)
        aside = self.directory / f"{_SAVING}{final.name}"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            write(aside)
            _seal(aside, step)
            self._put_in_place(aside, final)
        except Exception as error:
            is_full = _is_disk_full(error, self.directory)
            self._clean_up()
            if is_full or isinstance(error, OSError):
                reason = "the disk is full" if is_full else str(error)
                raise UserError(
                    f"the checkpoint of step {step} could not be written to {self.directory}: {reason}.",
                    self._what_is_left(),
                ) from error
            raise
        self._forget_others(step)
        return Checkpoint(step, final)

    def latest(self) -> Checkpoint | None:
        """See `latest_checkpoint`."""
        return latest_checkpoint(self.directory)

    def _put_in_place(self, aside: Path, final: Path) -> None:
        """Rename; a checkpoint of the same step that is replaced stays until the new one is there."""
        replaced = self.directory / f"{_REPLACED}{final.name}"
        if final.exists():
            final.rename(replaced)
        aside.rename(final)
        flush(self.directory)
        shutil.rmtree(replaced, ignore_errors=True)

    def _forget_others(self, newest: int) -> None:
        steps = [step for step, _ in _checkpoints(self.directory)]
        kept = sorted(step for step in steps if step <= newest)[-self.keep :]
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

    def _what_is_left(self) -> str:
        steps = [step for step, _ in _checkpoints(self.directory)]
        if not steps:
            return "There is no earlier checkpoint. Mend that and start again."
        return f"The checkpoint of step {max(steps)} is untouched. Mend that, then continue from it."


def latest_checkpoint(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none at all.

    Damaged ones are passed over, and the result says why. If all are damaged, that is an error: starting anew in
    silence would look like continuing.
    """
    skipped: list[str] = []
    for step, path in sorted(_checkpoints(directory), reverse=True):
        damage = find_damage(path)
        if damage is None:
            return Checkpoint(step, path, tuple(skipped))
        skipped.append(f"{path.name}: {damage}")
    if skipped:
        raise UserError(
            f"no checkpoint in {directory} is whole ({'; '.join(skipped)}).",
            "Start a new run with trainer.resume=never.",
        )
    return None


def has_checkpoints(directory: Path) -> bool:
    """Whether there is a checkpoint, whole or not."""
    return any(_checkpoints(directory))


def find_damage(path: Path) -> str | None:
    """What differs between the files of a checkpoint and its manifest; None if it is whole."""
    try:
        expected = json.loads((path / MANIFEST).read_text())["files"]
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


def _is_disk_full(error: Exception, directory: Path) -> bool:
    """torch and safetensors report a full disk by errors of their own, torch even without saying so."""
    return "No space left" in str(error) or shutil.disk_usage(directory).free < _FULL_DISK


def _seal(directory: Path, step: int) -> None:
    """Flush every file and write down what a whole checkpoint consists of."""
    files: dict[str, dict[str, int]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            flush(path)
            name = path.relative_to(directory).as_posix()
            files[name] = {"bytes": path.stat().st_size, "crc32": _checksum(path)}
        else:
            flush(path)
    write_json(directory / MANIFEST, {"step": step, "files": files})


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
