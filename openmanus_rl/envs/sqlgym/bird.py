"""BIRD (Li et al. 2023) from a directory: `train/train.json` with `train/train_databases`, `dev/dev.json` with its own.

Questions are numbered as AgentGym numbers them: those of train first, then those of dev. Dev is the test split.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from openmanus_rl.envs.base import Split, split_of
from openmanus_rl.envs.given_files import lacking, read_json
from openmanus_rl.envs.sqlgym.questions import Question
from openmanus_rl.errors import UserError


@lru_cache(maxsize=2)
def bird_questions(directory: str) -> tuple[Question, ...]:
    """The questions of the parts that are there; a question's database is the path of its file."""
    root = Path(directory)
    questions = [question for part in ("train", "dev") for question in _part(root, part)]
    if not questions:
        raise UserError(
            f"sqlgym: there is neither train/train.json nor dev/dev.json in {directory}",
            "env.options.bird_dir is the directory with BIRD's train and dev.",
        )
    return tuple(questions)


def _part(root: Path, part: str) -> list[Question]:
    listed = root / part / f"{part}.json"
    if not listed.is_file():
        return []
    databases = root / part / f"{part}_databases"
    questions = []
    for place, entry in enumerate(read_json(listed, "sqlgym", "bird_dir", list), 1):
        try:
            questions.append(_question(databases, part, entry))
        except (KeyError, TypeError, AttributeError) as error:
            raise lacking(listed, "sqlgym", "bird_dir", place, error) from error
    return questions


def _question(databases: Path, part: str, entry: Mapping[str, Any]) -> Question:
    return Question(
        database=str(databases / entry["db_id"] / f"{entry['db_id']}.sqlite"),
        text=entry["question"],
        gold=entry["SQL"],
        split=_split(part, f"{entry['db_id']} {entry['question']}"),
        hint=entry.get("evidence") or "",
    )


def _split(part: str, content: str) -> Split:
    """A tenth of train is for validation."""
    if part == "dev":
        return "test"
    return "validation" if split_of(content) == "validation" else "train"
