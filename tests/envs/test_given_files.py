"""Files that a user names in a world's options: what is wrong with one is told by its name and line."""

import json

import pytest

from openmanus_rl.envs.base import Task
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


def bird_of_another_shape(place):
    (place / "train").mkdir()
    (place / "train" / "train.json").write_text("null")
    return "sqlgym", {"bird_dir": str(place)}, r"train\.json holds no JSON list"


def products_of_another_shape(place):
    for name in ("items_ins_v2", "items_shuffle"):
        (place / f"{name}.json").write_text("{}")
    return "webshop", {"data_dir": str(place)}, r"items_shuffle\.json holds no JSON list"


def reviews(place):
    for name, content in (("items_ins_v2", "{}"), ("items_shuffle", "[]"), ("reviews", "[{}]")):
        (place / f"{name}.json").write_text(content)
    return "webshop", {"data_dir": str(place)}, r"entry 1 of .*reviews\.json lacks 'asin'"


def recipe(place):
    told = {"type": "crafting_shapeless", "ingredients": [[]], "result": {"item": "stick"}}
    (place / "stick.json").write_text(json.dumps(told))
    return "textcraft", {"recipes_dir": str(place)}, r"stick\.json is not a recipe"


def words(place):
    (place / "words.txt").write_bytes(b"crane\nf\xfcnf\n")
    return "wordle", {"word_list": str(place / "words.txt")}, r"line 2 of .*words\.txt is not UTF-8"


def corpus(place):
    (place / "corpus.jsonl").write_bytes(b'{"title": "a", "text": "b"}\n{"title": "\xfc", "text": "b"}\n')
    (place / "questions.jsonl").write_text('{"question": "a?", "answer": "b"}\n')
    files = {name: str(place / name.replace("_file", ".jsonl")) for name in ("corpus_file", "questions_file")}
    return "searchqa", files, r"line 2 of .*corpus\.jsonl is not UTF-8"


def empty_corpus(place):
    for name in ("corpus", "questions"):
        (place / f"{name}.jsonl").write_text("")
    files = {f"{name}_file": str(place / f"{name}.jsonl") for name in ("corpus", "questions")}
    return "searchqa", files, r"corpus\.jsonl is empty"


def mappings(place):
    return "alfworld", {"games_dir": str(place), "mappings": str(place / "none.json")}, r"no file at .*none\.json"


def gym_arguments(place):
    return "gym", {"id": "FrozenLake-v1", "make": {"colour": "red"}}, "colour.*env.options.make"


CASES = [
    webshop,
    products_of_another_shape,
    reviews,
    bird,
    bird_without_sql,
    bird_of_another_shape,
    recipe,
    words,
    corpus,
    empty_corpus,
    mappings,
    gym_arguments,
]


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_or_argument_is_a_users_mistake_told_by_its_place(tmp_path, case):
    name, options, told = case(tmp_path)
    with pytest.raises(UserError, match=f"(?s){told}"):
        make_environment(name, **options)


def test_a_database_that_is_none_is_told_when_its_question_is_asked(tmp_path):
    asked = [{"db_id": "pets", "question": "How many?", "SQL": "SELECT 1"}]
    databases = tmp_path / "dev" / "dev_databases" / "pets"
    databases.mkdir(parents=True)
    (tmp_path / "dev" / "dev.json").write_text(json.dumps(asked))
    (databases / "pets.sqlite").write_text("no database at all")
    world = make_environment("sqlgym", bird_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"pets\.sqlite cannot be read"):
        world.reset(Task("sqlgym", "sqlgym_0"))
