"""On disk, all or nothing: write aside, flush, rename."""

import json
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`: after a kill at any moment it holds either the old or the new content."""
    aside = path.with_name(f".{path.name}.writing")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    flush_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def flush_file(path: Path) -> None:
    """Wait until the content of `path` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Wait until the names in `path` are on the disk: a rename is only safe then."""
    flush_file(path)
