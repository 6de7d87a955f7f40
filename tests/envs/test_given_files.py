"""Files that a user names in a world's options: what is wrong with one is told by its name and line."""

import json

import pytest

from openmanus_rl.envs.registry import make_environment
from openmanus_rl.errors import UserError

BROKEN_JSON = '[{"a": 1},\n {"a": ]'


def webshop(place):
    (place / "items_ins_v2.json").write_text(BROKEN_JSON)
    return "webshop", {"data_dir": str(place)}, r"line 2 of .*items_ins_v2\.json is not JSON"


def bird(place):
    (place / "dev").mkdir()
    (place / "dev" / "dev.json").write_text(BROKEN_JSON)
    return "sqlgym", {"bird_dir": str(place)}, r"line 2 of .*dev\.json is not JSON"


def bird_without_sql(place):
    (place / "dev").mkdir()
    (place / "dev" / "dev.json").write_text(json.dumps([{"db_id": "pets", "question": "?"}]))
    return "sqlgym", {"bird_dir": str(place)}, r"entry 1 of .*dev\.json lacks 'SQL'"


def words(place):
    (place / "words.txt").write_bytes(b"crane\nf\xfcnf\n")
    return "wordle", {"word_list": str(place / "words.txt")}, r"line 2 of .*words\.txt is not UTF-8"


def corpus(place):
    (place / "corpus.jsonl").write_bytes(b'{"title": "a", "text": "b"}\n{"title": "\xfc", "text": "b"}\n')
    (place / "questions.jsonl").write_text('{"question": "a?", "answer": "b"}\n')
    files = {name: str(place / name.replace("_file", ".jsonl")) for name in ("corpus_file", "questions_file")}
    return "searchqa", files, r"line 2 of .*corpus\.jsonl is not UTF-8"


def mappings(place):
    return "alfworld", {"games_dir": str(place), "mappings": str(place / "none.json")}, r"no file at .*none\.json"


def gym_arguments(place):
    return "gym", {"id": "FrozenLake-v1", "make": {"colour": "red"}}, "colour.*env.options.make"


@pytest.mark.parametrize("case", [webshop, bird, bird_without_sql, words, corpus, mappings, gym_arguments])
def test_a_bad_file_or_argument_is_a_users_mistake_told_by_its_place(tmp_path, case):
    name, options, told = case(tmp_path)
    with pytest.raises(UserError, match=f"(?s){told}"):
        make_environment(name, **options)
