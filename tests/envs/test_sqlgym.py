"""SqlGym: its questions, what counts as the same answer, that queries do no harm, and its routes."""

import json
import re
import sqlite3
import time
from collections import Counter
from itertools import combinations

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.sqlgym import SqlGym
from openmanus_rl.envs.sqlgym.databases import database_bytes, schemas
from openmanus_rl.envs.sqlgym.query_process import QueryProcess
from openmanus_rl.envs.sqlgym.questions import own_questions
from openmanus_rl.envs.sqlgym.runner import Bounds, QueryRefused, ReadOnlyDatabase, is_ordered, same_answer
from openmanus_rl.errors import UserError

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"


def started(number: int = 0, **options: object) -> SqlGym:
    world = SqlGym(**options)
    world.reset(Task("sqlgym", f"sqlgym_{number}"))
    return world


@pytest.fixture
def retail():
    database = ReadOnlyDatabase(database_bytes("retail"), Bounds(seconds=0.2, rows=200, answer_bytes=10_000))
    yield database
    database.close()


def test_there_are_many_questions_about_many_databases():
    assert len(schemas()) >= 10
    asked = Counter(question.database for question in own_questions())
    assert min(asked.values()) >= 50
    assert asked.total() >= 300


def test_every_right_query_has_an_answer():
    databases = {schema.name: ReadOnlyDatabase(database_bytes(schema.name), Bounds()) for schema in schemas()}
    assert all(databases[question.database].run(question.gold) for question in own_questions())


def test_a_question_s_number_never_changes():
    first = own_questions()[0]
    assert (first.database, first.text) == ("retail", "How many customers have the city 'Ghent'?")


@pytest.mark.parametrize(
    ("given", "right", "in_order", "same"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], False, True),
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),  # as sets they would be the same
        ([(1,)], [(1,), (1,)], False, False),
        ([(0.1 + 0.2,)], [(0.3,)], False, True),
        ([(3,)], [(3.0,)], False, True),
        ([(3.1,)], [(3.0,)], False, False),
        ([("3",)], [(3,)], False, False),
        ([(None,), ("x",), (1,)], [(1,), (None,), ("x",)], False, True),
        ([("a", 1)], [("a",)], False, False),
        ([], [], True, True),
    ],
)
def test_results_are_compared_as_multisets_and_by_order_where_it_counts(given, right, in_order, same):
    assert same_answer(given, right, in_order) is same


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t order\n by a", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)", False),
        ("SELECT 'ORDER BY' FROM t", False),
        ('SELECT "order by" FROM t -- ORDER BY', False),
        ("SELECT ROW_NUMBER() OVER (ORDER BY (a)) FROM t", False),
    ],
)
def test_only_the_outermost_order_counts(sql, ordered):
    assert is_ordered(sql) is ordered


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "INSERT INTO customers VALUES (1, 2, 3, 4, 5)",
        "UPDATE products SET price = 0",
        "DROP TABLE orders",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "ATTACH ':memory:' AS other",
        "PRAGMA query_only = 0",
        "SELECT * FROM pragma_table_info('orders')",
        "VACUUM INTO '/tmp/x'",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "SELECT writefile('x', 'y')",
        "SELECT \ud800",
        "SELECT '\x00'",
        "nonsense",
    ],
)
def test_what_is_no_plain_reading_is_refused_and_changes_nothing(retail, sql):
    before = retail.run("SELECT COUNT(*), (SELECT SUM(price) FROM products) FROM orders")
    with pytest.raises(QueryRefused):
        retail.run(sql)
    assert retail.run("SELECT COUNT(*), (SELECT SUM(price) FROM products) FROM orders") == before


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (ENDLESS, "longer than"),
        ("SELECT COUNT(*) FROM orders a, orders b, orders c, orders d, orders e", "longer than"),
        ("SELECT a.id FROM orders a, orders b", "too large"),
        ("SELECT printf('%9000s', 'x') FROM orders", "too large"),
        ("SELECT length(printf('%.*c', 500000000, 'x'))", "exception"),
        ("SELECT length(format('%.' || 500000000 || 'c', 'x'))", "exception"),
        ("SELECT hex(randomblob(900000000))", "too big"),
        ("SELECT group_concat(hex(zeroblob(9000))) FROM orders a, orders b", "too big|longer than"),
        ("SELECT " + "1," * 20_000 + "1", "too large|too big|too long"),
    ],
)
def test_time_rows_and_bytes_of_a_query_are_bounded(retail, sql, why):
    with pytest.raises(QueryRefused, match=why):
        retail.run(sql)
    assert retail.run("SELECT 1") == [(1,)]


def test_printf_works_as_ever(retail):
    assert retail.run("SELECT printf('%.2f|%5d|%s', 2.5, 7, 'x'), format('%,d', 1234567)") == [
        ("2.50|    7|x", "1,234,567")
    ]


def test_text_that_is_no_utf8_can_be_seen(retail):
    assert retail.run("SELECT CAST(x'ff41' AS TEXT)") == [("\ufffdA",)]


def test_the_right_query_wins_however_it_is_written():
    for written in ("{}", "{};", "```sql\n{}\n```", "I think so.\n```sql\n{};\n```\nDone.", "  {}  "):
        world = started()
        result = world.step(written.format(world.expert_action()))
        assert (result.reward, result.terminated, result.success) == (1.0, True, True), written


def test_another_query_with_the_same_result_wins_too():
    assert started().step("WITH c AS (SELECT * FROM customers) SELECT SUM(city = 'Ghent') FROM c").success


def test_a_wrong_result_and_an_error_are_seen_and_the_last_attempt_loses():
    world = started(max_steps=3)
    result = world.step("SELECT 1, 'x'")
    assert (result.observation.text, result.reward, result.done) == ("[(1, 'x')]", 0.0, False)
    result = world.step("SELECT nobody FROM customers")
    assert (result.observation.text, result.done) == ("Error: no such column: nobody", False)
    assert result.info["error"]
    result = world.step("DROP TABLE customers")
    assert result.info["invalid"]
    assert (result.terminated, result.truncated, result.success) == (True, False, False)
    with pytest.raises(EpisodeOver):
        world.step("SELECT 1")


def test_a_long_result_is_cut():
    text = started().step("SELECT * FROM orders").observation.text
    assert len(text) < 310
    assert text.endswith("...")


def test_a_slow_query_ends_in_time_as_an_error():
    assert "longer than 0.1 s" in started(query_seconds=0.1).step(ENDLESS).observation.text


LONG_TEXTS = "(SELECT hex(zeroblob(90000)) h, hex(zeroblob(45000)) k)"
LEVELS_OF_SUMS = " FROM (".join(f"SELECT {'+'.join(['x'] * 60)} x" for _ in range(5))
UNSTOPPABLE = {
    "many calls within one row": f"SELECT {'+'.join(['instr(h,k||1)'] * 150)} FROM {LONG_TEXTS}",
    "one long call": f"SELECT length(trim(h, replace(substr(k, 1, 15000), '0', '1') || '0')) FROM {LONG_TEXTS}",
    "one long pattern": f"SELECT h LIKE '%' || substr(k, 1, 49990) || '1' FROM {LONG_TEXTS}",
    "a plan without end": f"{LEVELS_OF_SUMS} FROM (SELECT id x FROM orders){')' * 4}",
}
"""Queries that SQLite does not interrupt, whatever it is told."""


@pytest.mark.parametrize("sql", UNSTOPPABLE.values(), ids=UNSTOPPABLE)
def test_a_query_that_sqlite_does_not_interrupt_ends_in_time_too(sql):
    world = started(query_seconds=1.0)
    began = time.monotonic()
    result = world.step(sql)
    assert time.monotonic() - began < 3.0
    assert re.search("longer than 1 s|more memory or time", result.observation.text)
    assert world.step(world.expert_action()).success, "the next query is answered"
    world.close()


def test_a_query_s_memory_is_bounded():
    database = QueryProcess(database_bytes("retail"), Bounds(seconds=20, memory_bytes=64 << 20))
    hungry = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) "
    with pytest.raises(QueryRefused, match="memory"):
        database.run(f"{hungry} SELECT json_group_array(a.b) FROM (SELECT hex(randomblob(9000)) b FROM n ORDER BY b) a")
    assert database.run("SELECT 1") == [(1,)]
    database.close()


def test_the_right_query_is_told_nowhere():
    world = started()
    told = [world.instructions(), world.render(), world.state_key(), str(world.snapshot())]
    result = world.step("SELECT 1")
    told += [result.observation.text, str(dict(result.info))]
    assert world.expert_action().lower() not in " ".join(told).lower()


def test_what_is_shown_is_what_is_parsed():
    for form in SqlGym.grammar.forms:
        assert form.shown in started().instructions()
        assert SqlGym.grammar.parse(form.shown)


def test_splits_share_no_question_and_leave_none_out():
    items = {split: set(SqlGym.item_ids(split)) for split in SPLITS}
    assert not any(items[one] & items[other] for one, other in combinations(SPLITS, 2))
    assert set().union(*items.values()) == {f"sqlgym_{n}" for n in range(len(own_questions()))}


def test_the_expert_is_always_right():
    assert baseline_success("sqlgym", "expert", "test", 512).rate == 1.0


def test_a_look_at_a_table_answers_nothing():
    assert baseline_success("sqlgym", "random", "test", 64).rate == 0.0


def test_a_restored_snapshot_goes_on_exactly_as_before():
    world = started(5)
    world.step("SELECT 1")
    kept, key = json.loads(json.dumps(world.snapshot())), world.state_key()
    other = SqlGym()
    other.restore(kept)
    assert other.state_key() == key
    assert other.step(other.expert_action()) == world.step(world.expert_action())


@pytest.mark.parametrize(("option", "value"), [("max_steps", 0), ("query_seconds", 0)])
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(UserError, match=option):
        SqlGym(**{option: value})


@pytest.fixture
def bird(tmp_path):
    """Two questions in BIRD's layout."""
    for part, question, gold in (
        ("train", "How many cats are there?", "SELECT COUNT(*) FROM `cats`"),
        ("dev", "Who is oldest?", "SELECT name FROM cats ORDER BY age DESC LIMIT 1"),
    ):
        place = tmp_path / part / f"{part}_databases" / "pets"
        place.mkdir(parents=True)
        with sqlite3.connect(place / "pets.sqlite") as connection:
            connection.execute("CREATE TABLE cats (name TEXT, age INTEGER)")
            connection.executemany("INSERT INTO cats VALUES (?, ?)", [("Tom", 3), ("Kit", 9)])
        connection.close()
        entry = {"db_id": "pets", "question": question, "evidence": "cats are pets", "SQL": gold}
        (tmp_path / part / f"{part}.json").write_text(json.dumps([entry]))
    return tmp_path


def test_bird_can_be_played_from_its_directory(bird):
    options = {"bird_dir": str(bird)}
    assert list(SqlGym.item_ids("test", **options)) == ["sqlgym_1"]
    before = (bird / "dev/dev_databases/pets/pets.sqlite").read_bytes()
    world = SqlGym(**options)
    seen = world.reset(Task("sqlgym", "sqlgym_1")).text
    assert "CREATE TABLE cats (name TEXT, age INTEGER);" in seen
    assert seen.endswith("Question: Who is oldest?\nHint: cats are pets")
    assert world.step("SELECT name FROM cats WHERE name = 'Kit'").success
    world.reset(Task("sqlgym", "sqlgym_0"))
    assert world.step("SELECT COUNT(*) FROM `cats`").success
    world.close()
    assert (bird / "dev/dev_databases/pets/pets.sqlite").read_bytes() == before
    assert sorted(path.name for path in (bird / "dev/dev_databases/pets").iterdir()) == ["pets.sqlite"]


def test_a_bird_without_its_database_or_questions_is_refused(bird, tmp_path):
    (bird / "train/train_databases/pets/pets.sqlite").unlink()
    with pytest.raises(UserError, match=r"pets\.sqlite"):
        started(0, bird_dir=str(bird))
    with pytest.raises(UserError, match="bird_dir"):
        SqlGym(bird_dir=str(tmp_path / "nowhere"))


def test_an_agentgym_client_asks_once():
    with live_service(environment_class("sqlgym")) as url:
        index = call("POST", f"{url}/create").content
        seen = call("POST", f"{url}/reset", {"env_idx": index, "item_id": 0}).content
        assert seen == [call("GET", f"{url}/observation?env_idx={index}").content, None]
        step = call("POST", f"{url}/step", {"env_idx": index, "action": "SELECT 1"}).content
        assert step == {"state": "[(1,)]", "reward": 0.0, "done": True, "info": {}}
        again = call("POST", f"{url}/step", {"env_idx": index, "action": "SELECT 1"})
        assert (again.status, set(again.content)) == (409, {"detail"})
        assert call("POST", f"{url}/close", {"env_idx": index}).content is True
