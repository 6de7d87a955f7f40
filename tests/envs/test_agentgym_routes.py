"""Our server as an `agentenv` client meets it: the shapes of AgentGym's table, and of recorded conversations."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import toy_worlds
from live_service import call, live_service

from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.service.sessions import Limits

TRANSCRIPTS = Path(__file__).parents[2].parent / "shared" / "transcripts"
TOYS = {"textcraft": toy_worlds.Textcraft, "maze": toy_worlds.Maze, "wordle": toy_worlds.Wordle}
PREFIX = {"textcraft": "", "maze": "/maze", "wordle": "/wordle"}
RESET_KEY = {"textcraft": "data_idx", "maze": "game", "wordle": "seed"}


@pytest.fixture(scope="module", params=TOYS)
def family(request):
    with live_service(TOYS[request.param]) as url:
        yield request.param, url + PREFIX[request.param]


@pytest.fixture(scope="module")
def textcraft():
    with live_service(toy_worlds.Textcraft) as url:
        yield url


def test_an_episode_runs_through_the_routes_of_each_family(family):
    name, url = family
    session = call("POST", f"{url}/create").content["id"]
    reset = call("POST", f"{url}/reset", {"id": session, RESET_KEY[name]: 1}).content
    assert "1 of 3" in reset["observation"]
    step = call("POST", f"{url}/step", {"id": session, "action": "up"}).content
    assert step == {"observation": step["observation"], "reward": 2.0, "done": False}
    assert call("GET", f"{url}/observation?id={session}").content == step["observation"]
    assert call("POST", f"{url}/step", {"id": session, "action": "up"}).content["done"]


@pytest.mark.parametrize(
    ("name", "created", "reset"),
    [
        ("textcraft", {"id", "observation", "done", "reward"}, {"id", "observation", "done", "reward"}),
        ("maze", {"id"}, {"observation"}),
        ("wordle", {"id"}, {"id", "observation"}),
    ],
)
def test_create_and_reset_answer_with_the_keys_of_their_family(name, created, reset):
    with live_service(TOYS[name]) as url:
        made = call("POST", f"{url}{PREFIX[name]}/create").content
        assert set(made) == created
        assert set(call("POST", f"{url}{PREFIX[name]}/reset", {"id": made["id"], RESET_KEY[name]: 0}).content) == reset


def test_every_family_has_a_close_and_it_tells_whether_there_was_something(family):
    _, url = family
    session = call("POST", f"{url}/create").content["id"]
    assert [call("POST", f"{url}/close", {"id": session}).content for _ in range(3)] == [True, False, False]
    assert "error" in call("POST", f"{url}/step", {"id": session, "action": "up"}).content


def test_the_maze_of_these_routes_speaks_agentgyms_words_and_the_native_one_does_not():
    with live_service(toy_worlds.Maze) as url:
        session = call("POST", f"{url}/maze/create").content["id"]
        there = call("POST", f"{url}/maze/reset", {"id": session, "game": 0}).content["observation"]
        native = call("POST", f"{url}/v1/sessions", {"task": {"env": "maze", "item_id": "maze_0"}}).content
        assert there.startswith("agentgym:")
        assert native["observation"].startswith("native:")


def test_wordles_vocabulary_can_be_asked_for_before_the_first_reset():
    with live_service(environment_class("wordle")) as url:
        session = call("POST", f"{url}/wordle/create").content["id"]
        words = call("GET", f"{url}/wordle/filtered_vocab?id={session}").content
        assert len(words) > 10
        assert all(len(word) == 5 for word in words)
        call("POST", f"{url}/wordle/reset", {"id": session, "seed": 3})
        seen = call("POST", f"{url}/wordle/step", {"id": session, "action": " ".join(words[0])}).content["observation"]
        assert set(seen.split()) <= {"b", "y", "g"}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("step", {"id": 12345, "action": "up"}),
        ("reset", {"id": 12345}),
        ("reset", {"id": 12345, "data_idx": 3}),
    ],
)
def test_an_unknown_id_is_an_error_with_status_200(textcraft, verb, body):
    answer = call("POST", f"{textcraft}/{verb}", body)
    assert answer.status == 200
    assert set(answer.content) == {"error"}


def test_a_step_after_done_is_an_error_and_done_does_not_flip_back(textcraft):
    session = call("POST", f"{textcraft}/create").content["id"]
    call("POST", f"{textcraft}/reset", {"id": session, "data_idx": 2})
    assert call("POST", f"{textcraft}/step", {"id": session, "action": "up"}).content["done"]
    for _ in range(2):
        assert "over" in call("POST", f"{textcraft}/step", {"id": session, "action": "up"}).content["error"]


@pytest.mark.parametrize(
    "raw", [b'{"id": "x", "action": "a"}', b'{"action": "a"}', b'{"id": 1}', b"nonsense", b"", b'{"id": NaN}']
)
def test_a_wrong_type_is_422_with_the_flaws_listed(textcraft, raw):
    answer = call("POST", f"{textcraft}/step", raw=raw)
    assert answer.status == 422
    assert {"type", "loc", "msg"} <= set(answer.content["detail"][0])
    assert answer.content["detail"][0]["loc"][0] == "body"


def test_a_wrong_query_is_422(textcraft):
    assert call("GET", f"{textcraft}/observation?id=x").content["detail"][0]["loc"] == ["query", "id"]
    assert call("GET", f"{textcraft}/observation").status == 422


def test_recipes_of_the_callers_own_are_refused_and_nulls_are_not(textcraft):
    assert "id" in call("POST", f"{textcraft}/create", {"minecraft_dir": "x", "commands": None, "goal": None}).content
    assert "goal" in call("POST", f"{textcraft}/create", {"commands": "craft", "goal": "x"}).content["error"]


def test_a_full_server_says_so_with_its_status():
    with live_service(toy_worlds.Maze, limits=Limits(max_sessions=1)) as url:
        call("POST", f"{url}/maze/create")
        full = call("POST", f"{url}/maze/create")
        assert (full.status, full.headers["Retry-After"]) == (503, "1")


def test_the_root_greets_with_a_string(textcraft):
    assert "textcraft" in call("GET", textcraft).content


def test_a_world_that_agentgym_does_not_know_has_native_routes_only():
    with live_service(toy_worlds.Counter) as url:
        assert call("POST", f"{url}/create").status == 404


@pytest.mark.parametrize("name", ["textcraft", "wordle"])
def test_a_recorded_conversation_gets_answers_of_the_same_shape(name):
    """Only shapes are compared: the recorded server has other tasks. Its 500s and `detail` are not promised."""
    path = TRANSCRIPTS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"there are no recorded conversations at {TRANSCRIPTS}")
    ids: dict[int, int] = {}
    compared = 0
    with live_service(environment_class(name)) as url:
        for record in map(json.loads, path.read_text().splitlines()):
            address = urlsplit(record["url"])
            verb = address.path.rpartition("/")[2]
            if record["status"] == 500 or verb == "detail":
                continue
            body = dict(record["request_json"]) if record["request_json"] else None
            if body and "id" in body:
                body["id"] = ids.get(body["id"], body["id"])
            query = f"?id={ids[int(address.query.partition('=')[2])]}" if address.query else ""
            ours = call(record["method"], f"{url}{address.path}{query}", body)
            if verb == "create":
                ids[record["response"]["id"]] = ours.content["id"]
            assert ours.status == record["status"]
            assert shape(ours.content) == shape(record["response"]), record
            compared += 1
    assert compared >= 6


def shape(value):
    """The value with every leaf replaced by the name of its JSON type. A caller's wrong input is not sent back."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items() if key != "input"}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
