"""Conversations as people have them in files: both forms, every kind of file, and what is said of a mistake."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from openmanus_rl.data.demonstrations import Demonstration, read_demonstrations, write_demonstrations
from openmanus_rl.errors import UserError

AGENTTRAJ = {
    "item_id": "webshop_3",
    "conversations": [
        {"from": "human", "loss": None, "value": "You shop."},
        {"from": "gpt", "loss": False, "value": "OK."},
        {"from": "human", "loss": None, "value": "Find a mug."},
        {"from": "gpt", "loss": True, "value": "Action: search[mug]"},
    ],
}
CHAT = {
    "messages": [
        {"role": "system", "content": "You shop."},
        {"role": "user", "content": "Find a mug."},
        {"role": "assistant", "content": "Action: search[mug]"},
    ]
}
SHOPPED = (
    {"role": "user", "content": "You shop."},
    {"role": "assistant", "content": "OK.", "loss": False},
    {"role": "user", "content": "Find a mug."},
    {"role": "assistant", "content": "Action: search[mug]", "loss": True},
)


def write(path, entries):
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(entries), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(entries, indent=1), encoding="utf-8")
    else:
        path.write_text("\n\n".join(map(json.dumps, entries)), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["said.json", "said.jsonl", "said.parquet"])
def test_both_forms_are_read_from_every_kind_of_file(tmp_path, name):
    (shopped,) = read_demonstrations(write(tmp_path / name, [AGENTTRAJ]))
    assert shopped == Demonstration("webshop_3", SHOPPED)
    chats = read_demonstrations(write(tmp_path / name, [CHAT, CHAT]))
    assert [chat.messages for chat in chats] == [tuple(CHAT["messages"])] * 2
    assert len({chat.item_id for chat in chats}) == 2, "one that names no task is named by its place"


def test_what_is_written_is_read_again(tmp_path):
    shown = Demonstration("webshop_3", SHOPPED, episode_return=0.5, success=False)
    write_demonstrations(tmp_path / "shown.parquet", [shown])
    assert read_demonstrations(tmp_path / "shown.parquet") == [shown]


def chat(*messages):
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in messages]})


ASKED, ANSWERED = ("user", "q"), ("assistant", "a")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"messages": [', r"line 2, column \d+ is not JSON"),
        (b'{"messages": "\xff"}', "line 2 is not UTF-8"),
        ("[1]", "line 2 is not an object but list"),
        ('{"text": "q"}', "line 2 has neither conversations nor messages; it has text"),
        ('{"messages": "q"}', "line 2: messages is not a list but str"),
        (chat(("usr", "q"), ANSWERED), "line 2, message 1 is from 'usr'. Did you mean user"),
        (chat(ASKED, ("assistant", None)), "line 2, message 2 has no text in content: None"),
        (chat(ASKED), "line 2 has no message of the assistant"),
        (chat(ANSWERED, ASKED), "line 2 begins with the assistant"),
        (chat(ASKED, ANSWERED, ANSWERED), "line 2 has 0 messages between the assistant's messages 2 and 3"),
        ('{"conversations": [{"from": "human", "value": "q", "loss": 1}]}', "line 2, message 1 has loss=1"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, line, complaint):
    path = tmp_path / "said.jsonl"
    wrong = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(json.dumps(CHAT).encode() + b"\n" + wrong + b"\n")
    with pytest.raises(UserError, match=f"said.jsonl, {complaint}"):
        read_demonstrations(path)


def test_a_file_of_json_tells_the_line_too(tmp_path):
    path = tmp_path / "said.json"
    path.write_bytes(b'[\n{"messages": "\xff"}]')
    with pytest.raises(UserError, match=r"said\.json, line 2 is not UTF-8"):
        read_demonstrations(path)
    path.write_text("[\n{]")
    with pytest.raises(UserError, match=r"said\.json, line 2, column 2 is not JSON"):
        read_demonstrations(path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("missing.jsonl", None, "there is no file"),
        ("empty.jsonl", "\n", "has no conversations"),
        ("empty.json", "[]", "has no conversations"),
        ("one.json", json.dumps(CHAT), "is not a list of conversations"),
        ("said.txt", json.dumps(CHAT), r"is neither \.json nor \.jsonl nor \.parquet"),
        ("said.parquet", "PAR1", "is not a readable parquet file"),
    ],
)
def test_a_file_without_conversations_is_told_as_such(tmp_path, name, content, complaint):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        read_demonstrations(tmp_path / name)
