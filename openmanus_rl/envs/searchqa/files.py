"""A corpus and questions from files.

- Corpus: a JSON object a line, with `title` and `text`, or as wiki-18 with `contents`, whose first line is the title.
- Questions: a JSON object a line, with `question` and one of `golden_answers`, `answers` or `answer`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openmanus_rl.envs.searchqa.encyclopedia import Document
from openmanus_rl.envs.searchqa.questions import Question
from openmanus_rl.errors import UserError


def read_documents(path: str) -> tuple[Document, ...]:
    return tuple(_document(where, entry) for where, entry in _lines(path, "corpus_file"))


def read_questions(path: str) -> tuple[Question, ...]:
    return tuple(_question(where, entry) for where, entry in _lines(path, "questions_file"))


def _document(where: str, entry: dict[str, Any]) -> Document:
    if "contents" in entry:
        title, _, text = str(entry["contents"]).partition("\n")
        return Document(title.strip().strip('"'), text.strip())
    if "title" in entry and "text" in entry:
        return Document(str(entry["title"]), str(entry["text"]))
    raise UserError(f"searchqa: {where} has neither title and text nor contents")


def _question(where: str, entry: dict[str, Any]) -> Question:
    answers = next((entry[key] for key in ("golden_answers", "answers", "answer") if entry.get(key)), None)
    if "question" not in entry or answers is None:
        raise UserError(f"searchqa: {where} lacks a question, or its answers", "Write golden_answers as a list.")
    return Question(str(entry["question"]), tuple(map(str, answers if isinstance(answers, list) else [answers])))


def _lines(path: str, option: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place and content."""
    if not Path(path).is_file():
        raise UserError(f"searchqa: there is no file at {path}", f"Look at env.options.{option}.")
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise UserError(
                    f"searchqa: line {number} of {path} is not UTF-8", f"Save it so; env.options.{option} names it."
                ) from error
            except json.JSONDecodeError as error:
                raise UserError(f"searchqa: line {number} of {path} is not JSON: {error}") from error
            if not isinstance(entry, dict):
                raise UserError(f"searchqa: line {number} of {path} is not a JSON object")
            yield f"line {number} of {path}", entry
