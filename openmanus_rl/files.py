"""On disk, all or nothing: write aside, flush, rename. A kill at any moment leaves what was there before.

A directory that was being replaced may then stand beside its place; `remove_unfinished` puts it back.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ASIDE, _REPLACED = ".writing", ".replaced"


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A path beside `target` to make a file or a directory at; it takes the target's place when the block succeeds.

    If the block raises, nothing has changed. A directory that stands at `target` is replaced as a whole.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{_ASIDE}")
    try:
        yield aside
        _flush_tree(aside)
        if target.is_dir():
            _replace_directory(aside, target)
        else:
            os.replace(aside, target)
        flush(target.parent)
    finally:
        _remove(aside)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def remove_unfinished(directory: Path) -> None:
    """Remove what a kill left of files and directories that were being written aside, below `directory`."""
    for path in list(directory.rglob(f".*{_REPLACED}")):
        target = path.with_name(path.name[1:].rsplit(".", 2)[0])
        if target.exists():
            _remove(path)
        else:
            os.replace(path, target)
    for path in list(directory.rglob(f".*{_ASIDE}")):
        _remove(path)


def drop_cut_off_line(path: Path) -> None:
    """What is appended to a file of lines must not continue the line that a kill cut off."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


def _replace_directory(aside: Path, target: Path) -> None:
    """A directory cannot be renamed onto a full one, so the old one steps aside first."""
    old = aside.with_suffix(_REPLACED)
    os.replace(target, old)
    os.replace(aside, target)
    shutil.rmtree(old)


def _flush_tree(path: Path) -> None:
    if path.is_dir():
        for entry in path.iterdir():
            _flush_tree(entry)
    flush(path)


def flush(path: Path) -> None:
    """Wait until the content of a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
