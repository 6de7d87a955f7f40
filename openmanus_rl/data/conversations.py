"""Conversations from files: AgentTraj's form or chat messages, as JSON, JSON lines or parquet.

AgentTraj: `{"item_id": …, "conversations": [{"from": "human" | "gpt" | "system", "loss": …, "value": …}, …]}`.
Chat: `{"messages": [{"role": …, "content": …}, …]}`. An assistant's message with `loss: false` is not learnt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from openmanus_rl.data.messages import Message
from openmanus_rl.data.parquet import open_parquet
from openmanus_rl.errors import UserError, did_you_mean

SPEAKERS = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
"""AgentTraj's names, and the roles that they are."""
ROLES = ("system", "user", "assistant", "tool")

_FORMS = "A conversation has conversations[{from, value, loss}] (AgentTraj) or messages[{role, content}] (chat)."
_MADE_BY = "Conversations are made with: openmanus-rl sft, which demonstrates first."


def read_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every conversation of a file as it stands there, and where: `file.jsonl, line 3`."""
    if path.suffix == ".parquet":
        with open_parquet(path, _MADE_BY) as file:
            for number, row in enumerate(file.read().to_pylist(), start=1):
                yield f"{path}, row {number}", row
        return
    if not path.is_file():
        raise UserError(f"there is no file {path}", _MADE_BY)
    if path.suffix == ".jsonl":
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = f"{path}, line {number}"
                    yield where, _object(where, _parse(path, line.rstrip(), number))
    elif path.suffix == ".json":
        entries = _parse(path, path.read_bytes(), 1)
        if not isinstance(entries, list):
            raise UserError(f"{path} is not a list of conversations.", "For one object a line, call it .jsonl.")
        for number, entry in enumerate(entries, start=1):
            yield f"{path}, entry {number}", _object(f"{path}, entry {number}", entry)
    else:
        raise UserError(f"{path} is neither .json nor .jsonl nor .parquet.", _FORMS)


def messages_of(where: str, record: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of a conversation, checked: somebody asks, and the assistant answers, in turns."""
    if record.get("conversations") is not None:
        said = _list(where, "conversations", record["conversations"])
        messages = [_message(f"{where}, message {n}", turn, "from", "value") for n, turn in enumerate(said, start=1)]
    elif record.get("messages") is not None:
        said = _list(where, "messages", record["messages"])
        messages = [_message(f"{where}, message {n}", turn, "role", "content") for n, turn in enumerate(said, start=1)]
    else:
        raise UserError(
            f"{where} has neither conversations nor messages; it has {', '.join(record) or 'nothing'}.", _FORMS
        )
    _check_turns(where, messages)
    return tuple(messages)


def _message(where: str, turn: Any, speaker: str, content: str) -> Message:
    turn = _object(where, turn)
    for key in (speaker, content):
        if not isinstance(turn.get(key), str):
            raise UserError(f"{where} has no text in {key}: {turn.get(key)!r}.", _FORMS)
    known = SPEAKERS if speaker == "from" else {role: role for role in ROLES}
    if turn[speaker] not in known:
        raise UserError(f"{where} is from {turn[speaker]!r}. {did_you_mean(turn[speaker], known)}")
    message: Message = {"role": known[turn[speaker]], "content": turn[content]}
    loss = turn.get("loss")
    if loss is not None:
        if not isinstance(loss, bool):
            raise UserError(f"{where} has loss={loss!r}.", "It is true, false, or not there.")
        message["loss"] = loss
    return message


def _check_turns(where: str, messages: Sequence[Message]) -> None:
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers:
        raise UserError(f"{where} has no message of the assistant: there is nothing to learn from.")
    if answers[0] == 0:
        raise UserError(f"{where} begins with the assistant.", "Something must be said before its first message.")
    for earlier, later in pairwise(answers):
        if later - earlier != 2:
            raise UserError(
                f"{where} has {later - earlier - 1} messages between the assistant's messages {earlier + 1} and "
                f"{later + 1}.",
                "Exactly one must stand between two of its messages; join several into one.",
            )


def _parse(path: Path, content: bytes, first_line: int) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise UserError(f"{path}, line {line} is not UTF-8.", "Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}, line {line}, column {error.colno} is not JSON: {error.msg}.") from error


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} is not an object but {type(value).__name__}.", _FORMS)
    return value


def _list(where: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{where}: {key} is not a list but {type(value).__name__}.", _FORMS)
    return value
