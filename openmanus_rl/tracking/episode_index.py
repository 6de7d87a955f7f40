"""The index beside a run's episodes: what a list of them shows, and where each is, without reading them.

`episodes/index.jsonl` gets a line for each file that is written; a later line for the same file takes its place. A file
without a line, or of another size than its line says, is indexed by reading it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from openmanus_rl.files import drop_cut_off_line

INDEX = "index.jsonl"
_TOKENS_FOLLOW = b', "segments": ['


class EpisodeEntry(NamedTuple):
    """One episode of a file, in the order in which an index line has it."""

    number: int
    """Its line in the file, from 1, as `openmanus-rl replay` counts."""
    offset: int
    """The byte of the file at which its line starts."""
    length: int
    """Bytes of the line."""
    head: int
    """Bytes of the line before its tokens: all its texts are there."""
    env: str
    difficulty: str
    """What `task.extra["difficulty"]` says; "" if it says nothing."""
    item_id: str
    group: int
    sample: int
    success: bool
    episode_return: float
    stop_reason: str
    turns: int
    tokens: int
    """Tokens that were sampled."""
    trained: bool
    """Whether an update was told an advantage for its tokens."""


class EpisodeFile(NamedTuple):
    """A file of episodes and what is in it."""

    name: str
    size: int
    entries: list[EpisodeEntry]


def index_lines(name: str, lines: Iterable[bytes]) -> tuple[EpisodeFile, list[str]]:
    """The index of a file from its lines, and what is wrong with those that are no episodes."""
    entries: list[EpisodeEntry] = []
    problems: list[str] = []
    offset = 0
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            problems.append(f"{name}: line {number} is cut off")
        elif (entry := _entry(line, number, offset)) is None:
            problems.append(f"{name}: line {number} is no episode")
        else:
            entries.append(entry)
        offset += len(line)
    return EpisodeFile(name, offset, entries), problems


def append_to_index(directory: Path, file: EpisodeFile) -> None:
    """Say what is in a file that was just written."""
    path = directory / INDEX
    drop_cut_off_line(path)
    with path.open("a", encoding="utf-8") as index:
        index.write(json.dumps(file._asdict()) + "\n")


def parse_index_line(line: bytes) -> EpisodeFile | None:
    """The inverse of what `append_to_index` writes; None if it is something else."""
    try:
        told = json.loads(line)
        return EpisodeFile(
            str(told["name"]), int(told["size"]), [EpisodeEntry._make(entry) for entry in told["entries"]]
        )
    except (ValueError, KeyError, TypeError):
        return None


def _entry(line: bytes, number: int, offset: int) -> EpisodeEntry | None:
    try:
        record = json.loads(line)
        return _entry_of(record, number, offset, line)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _entry_of(record: Mapping[str, Any], number: int, offset: int, line: bytes) -> EpisodeEntry:
    segments = record["segments"]
    head = line.rfind(_TOKENS_FOLLOW)
    return EpisodeEntry(
        number=number,
        offset=offset,
        length=len(line),
        head=head if head > 0 else len(line),
        env=str(record["env"]),
        difficulty=str((record.get("task") or {}).get("extra", {}).get("difficulty", "")),
        item_id=str(record["item_id"]),
        group=int(record["group"]),
        sample=int(record["sample"]),
        success=bool(record["success"]),
        episode_return=float(record["return"]),
        stop_reason=str(record["stop_reason"]),
        turns=len(record["turns"]),
        tokens=sum(sum(segment["mask"]) for segment in segments),
        trained=any(segment.get("advantages") for segment in segments),
    )
