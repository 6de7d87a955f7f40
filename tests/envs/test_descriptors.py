"""The client against a server that speaks as AgentGym's table says, for every family of it."""

import asyncio
from typing import Any, NamedTuple

import pytest
from live_service import live_app
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from openmanus_rl.data.tasks import build_tasks
from openmanus_rl.envs.base import SPLITS, Task
from openmanus_rl.envs.client import AgentGymClient, EnvFailure, NativeClient, Patience, make_client
from openmanus_rl.envs.client.descriptors import DESCRIPTORS
from openmanus_rl.envs.client.remote import SPLIT_SIZES
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.checked_config import load_checked_config

HASTY = Patience(start_seconds=2.0, step_seconds=2.0, close_seconds=0.5, tries=2, backoff_seconds=0.02)


class Talk(NamedTuple):
    """What one family's server is asked and answers, for task 3, an action `go` in the middle and one at the end."""

    create: Any
    created: Any
    reset: dict[str, Any]
    was_reset: Any
    sent: str
    middle: dict[str, Any]
    end: dict[str, Any]
    rewards: tuple[float, float]
    shown: str
    prefix: str = ""
    closes: bool = False


STEP = ({"observation": "on", "reward": 0, "done": False}, {"observation": "end", "reward": 1, "done": True})
SCORED = tuple({**step, "score": score} for step, score in zip(STEP, (0.25, 0.9), strict=True))
SHOP = (
    {"state": "on", "reward": 0, "done": False, "info": None},
    {"state": "end", "reward": 1.0, "done": True, "info": None},
)
TOOL = Talk(
    {"id": 3}, 7, {"env_idx": 7, "id": 3}, "goal", "Action: go",
    {"observation": "on", "reward": 0.5, "done": False}, {"observation": "end", "reward": True, "done": True},
    (0.5, 0.5), "goal",
)  # fmt: skip

TALKS = {
    "textcraft": Talk(
        {}, {"id": 7, "observation": "x", "done": False, "reward": 0}, {"id": 7, "data_idx": 3},
        {"id": 7, "observation": "goal", "done": False, "reward": 0}, "go", *STEP, (0, 1), "goal", closes=True,
    ),
    "babyai": Talk(
        None, {"id": 7}, {"id": 7, "data_idx": 3},
        {"observation": "goal", "reward": 0, "score": 0, "deleted": False, "done": False},
        "go", *SCORED, (0.25, 0.65), "goal", closes=True,
    ),
    "sciworld": Talk(
        None, {"id": 7}, {"id": 7, "data_idx": 3},
        {"task_name": "t", "var_num": 0, "task_description": "boil", "observation": "hall", "reward": 0, "score": 0,
         "deleted": False, "done": False},
        "go", {**STEP[0], "score": 10}, {**STEP[1], "score": 100}, (10, 90), "boil\nhall", closes=True,
    ),
    "alfworld": Talk(
        None, {"id": 7}, {"id": 7, "game": 3, "world_type": "Text"},
        {"id": 7, "observation": "room", "available_actions": ["look", "go to desk 1"], "task_type": "t"},
        "go", {**STEP[0], "available_actions": ["look"]}, {**STEP[1], "available_actions": []},
        (0, 1), "room\nAvailable actions: look, go to desk 1",
    ),
    "maze": Talk(None, {"id": 7}, {"id": 7, "game": 3}, {"observation": "goal"}, "go", *STEP, (0, 1), "goal", "/maze"),
    "wordle": Talk(
        None, {"id": 7}, {"id": 7, "seed": 3}, {"id": 7, "observation": "goal"}, "go", *STEP, (0, 1), "goal", "/wordle"
    ),
    "webshop": Talk(None, 7, {"env_idx": 7, "session_id": 3}, ["goal", None], "go", *SHOP, (0, 1), "goal"),
    "sqlgym": Talk(None, 7, {"env_idx": 7, "item_id": 3}, ["goal", None], "go", *SHOP, (0, 1), "goal"),
    "searchqa": Talk(
        {"id": 3}, 7, {"env_idx": 7, "id": 3}, "goal", "go", {**STEP[0], "info": None}, {**STEP[1], "info": None},
        (0, 1), "goal", closes=True,
    ),
    "webarena": Talk(
        None, {"env_idx": 7}, {"env_idx": 7, "seed": 0, "idx": 3},
        {"observation": "tree", "sites": ["shop"], "object": "buy it"},
        "In summary, the next action I will perform is ```go```",
        {"observation": "on", "reward": 0.0, "terminated": False, "truncated": False, "info": {}},
        {"observation": "end", "reward": 1.0, "terminated": True, "truncated": False, "info": {}},
        (0, 1), "buy it\ntree", closes=True,
    ),
    "weather": TOOL, "movie": TOOL, "academia": TOOL, "todo": TOOL, "sheet": TOOL,
}  # fmt: skip


def server_of(talk, asked):
    answers = {"create": [talk.created], "reset": [talk.was_reset], "step": [talk.middle, talk.end], "close": [True]}

    async def answer(request):
        verb = request.path_params["verb"]
        asked.append((verb, await request.json() if await request.body() else None))
        return JSONResponse(answers[verb].pop(0))

    return Starlette(routes=[Route(talk.prefix + "/{verb}", answer, methods=["POST"])])


@pytest.mark.parametrize("name", TALKS)
def test_the_client_speaks_and_understands_each_family(name):
    talk, asked = TALKS[name], []

    async def play(url):
        async with AgentGymClient(name, [url], patience=HASTY) as client:
            handle = await client.start(Task(name, f"{name}_3"))
            results = [(await client.step(handle, "go"))[0] for _ in range(2)]
            await client.close(handle)
            return handle, results

    with live_app(server_of(talk, asked)) as url:
        handle, (middle, end) = asyncio.run(play(url))
    key = DESCRIPTORS[name].id_key
    step = ("step", {key: 7, "action": talk.sent})
    closing = [("close", {key: 7})] if talk.closes else []
    assert asked == [("create", talk.create), ("reset", talk.reset), step, step, *closing]
    assert handle.observation.text == talk.shown
    assert (middle.reward, end.reward) == pytest.approx(talk.rewards)
    assert (middle.done, middle.success, end.terminated, end.success) == (False, False, True, True)
    assert middle.observation.text.startswith("on")


def test_every_family_has_a_descriptor_a_count_of_tasks_and_a_test():
    assert set(TALKS) == set(DESCRIPTORS) == set(SPLIT_SIZES)


def test_a_page_that_was_cut_off_is_truncated_and_no_success():
    talk = TALKS["webarena"]
    cut = talk._replace(middle={**talk.end, "reward": 0.0, "terminated": False, "truncated": True})

    async def play(url):
        async with AgentGymClient("webarena", [url], patience=HASTY) as client:
            return (await client.step(await client.start(Task("webarena", "webarena_3")), "go"))[0]

    with live_app(server_of(cut, [])) as url:
        result = asyncio.run(play(url))
    assert (result.terminated, result.truncated, result.success) == (False, True, False)


@pytest.mark.parametrize("answer", [None, [], ["x"], {"observation": 3}, "goal", {"error": "no"}])
@pytest.mark.parametrize("name", ["babyai", "webshop", "webarena"])
def test_an_answer_of_another_shape_is_a_failure_and_never_a_reward(name, answer):
    if (name, answer) == ("webshop", ["x"]):
        pytest.skip("that is how webshop answers")

    async def play(url):
        async with AgentGymClient(name, [url], patience=HASTY) as client:
            await client.start(Task(name, f"{name}_3"))

    with live_app(server_of(TALKS[name]._replace(was_reset=answer), [])) as url, pytest.raises(EnvFailure):
        asyncio.run(play(url))


def test_a_family_elsewhere_has_tasks_here_and_is_played_by_its_own_client():
    world = environment_class("agentgym/webarena")
    items = {split: list(world.item_ids(split)) for split in SPLITS}
    assert sum(map(len, items.values())) == len(set().union(*items.values())) == 20
    (task,) = build_tasks("agentgym/webarena", "train", 1)
    assert task.item_id == items["train"][0]
    assert "accessibility tree" in task.prompt
    assert isinstance(make_client("agentgym/webarena", ["http://127.0.0.1:1"], HASTY), AgentGymClient)
    assert isinstance(make_client("maze", ["http://127.0.0.1:1"], HASTY), NativeClient)


def test_a_family_elsewhere_without_servers_or_with_a_wrong_name_is_a_users_mistake():
    with pytest.raises(UserError, match=r"env\.urls"):
        load_checked_config(None, ["env.name=agentgym/babyai"])
    load_checked_config(None, ["env.name=agentgym/babyai", "env.urls=[http://127.0.0.1:1]"])
    with pytest.raises(UserError, match="Did you mean babyai"):
        environment_class("agentgym/babyia")
