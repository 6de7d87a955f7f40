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
SAME_FOR_ALL_TASKS = ("Inventory: You", "Could not execute", "Could not find enough")
"""Beginnings of TextCraft's answers that do not depend on the task."""
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


@pytest.fixture(scope="module")
def crafting():
    with live_service(environment_class("textcraft")) as url:
        yield url


def test_a_task_of_the_caller_s_own_is_played_to_its_end(crafting):
    commands = "craft 4 oak planks using 1 oak log\ncraft 9 coal using 1 coal block\ncraft 1 coal block using 9 coal"
    body = {"minecraft_dir": "x", "commands": commands, "goal": "minecraft:oak_planks"}
    made = call("POST", f"{crafting}/create", body).content
    assert made["observation"] == f"Crafting commands:\n{commands}\n\nGoal: craft oak planks."
    actions = ["get 1 oak planks", "get 1 oak log", "craft 4 oak planks using 1 oak log"]
    steps = [call("POST", f"{crafting}/step", {"id": made["id"], "action": action}).content for action in actions]
    assert [step["observation"] for step in steps] == [
        "Could not find oak planks",
        "Got 1 oak log",
        "Crafted 4 minecraft:oak_planks",
    ]
    assert (steps[-1]["reward"], steps[-1]["done"]) == (1.0, True)


@pytest.mark.parametrize(
    ("commands", "goal", "told"),
    [
        ("craft", "stick", "not a crafting command"),
        ("craft 4 stick using 2 planks", "planks", "do not lead to planks"),
        ("craft 1 egg using 1 hen\ncraft 1 hen using 1 egg", "egg", "do not lead to egg"),
        ("craft 4 stick using 2 planks", "../x", "no name of an item"),
        ("\n".join(["craft 4 stick using 2 planks"] * 65), "stick", "65 commands"),
        ("craft 4 stick using 2 " + "p" * 400, "stick", "not a crafting command"),
        ("craft 4 stick using 2 planks", None, "belong together"),
    ],
)
def test_a_task_that_is_none_is_refused_and_leaves_no_session(crafting, commands, goal, told):
    before = call("GET", f"{crafting}/health").content["sessions"]
    assert told in call("POST", f"{crafting}/create", {"commands": commands, "goal": goal}).content["error"]
    assert call("GET", f"{crafting}/health").content["sessions"] == before


def test_nulls_are_no_task_and_other_families_take_none(crafting):
    assert "id" in call("POST", f"{crafting}/create", {"minecraft_dir": "x", "commands": None, "goal": None}).content
    with live_service(toy_worlds.Maze) as url:
        assert "own tasks" in call("POST", f"{url}/maze/create", {"commands": "craft", "goal": "x"}).content["error"]


def test_textcraft_s_detail_is_how_the_last_step_went(crafting):
    session = call("POST", f"{crafting}/create", {"commands": "craft 4 stick using 2 planks", "goal": "stick"}).content
    detail = f"{crafting}/detail?id={session['id']}"
    start = {"observation": session["observation"], "done": False, "reward": 0.0, "deleted": False}
    assert call("GET", detail).content == start
    for action in ("get 2 planks", "craft 4 stick using 2 planks"):
        call("POST", f"{crafting}/step", {"id": session["id"], "action": action})
    end = {"observation": "Crafted 4 minecraft:stick", "done": True, "reward": 1.0, "deleted": False}
    assert call("GET", detail).content == end


def test_textcraft_answers_in_agentgym_s_words_here_and_in_its_own_on_native_routes(crafting):
    session = call("POST", f"{crafting}/create").content["id"]
    native = call("POST", f"{crafting}/v1/sessions", {"task": {"env": "textcraft", "item_id": "textcraft_0"}}).content
    told = {
        "inventory": ("Inventory: You are not carrying anything.", "Inventory: nothing"),
        "nonsense": ("Could not execute nonsense", "Could not execute that"),
        "": ("Could not execute ", "Could not execute that"),
        "craft 1 foo using 1 bar": (
            "Could not find enough items to craft minecraft:foo",
            "Could not craft foo: that command is not listed",
        ),
        "get 2 oak log": ("Got 2 oak log", "Got 2 oak log"),
        "get 1 clay ball": ("Got 1 clay ball", "Got 1 clay ball"),
        " inventory": ("Inventory: [oak log] (2) [clay ball] (1) ", "Inventory: [clay ball] (1) [oak log] (2)"),
    }
    for turn, (action, answers) in enumerate(told.items(), 1):
        here = call("POST", f"{crafting}/step", {"id": session, "action": action}).content["observation"]
        url = f"{crafting}/v1/sessions/{native['session_id']}/step"
        there = call("POST", url, {"action": action, "turn": turn}).content["observation"]
        assert (here, there) == answers


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
    """The recorded server has other tasks; what does not depend on them is the same to the letter. Its 500s are not."""
    path = TRANSCRIPTS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"there are no recorded conversations at {TRANSCRIPTS}")
    ids: dict[int, int] = {}
    compared = 0
    with live_service(environment_class(name)) as url:
        for record in map(json.loads, path.read_text().splitlines()):
            address = urlsplit(record["url"])
            verb = address.path.rpartition("/")[2]
            if record["status"] == 500:
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
            if verb == "step" and record["response"].get("observation", "").startswith(SAME_FOR_ALL_TASKS):
                assert ours.content == record["response"]
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
