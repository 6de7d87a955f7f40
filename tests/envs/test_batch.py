"""Many sessions' steps in one call: the route, and the client that uses it."""

import asyncio
import itertools
import json
import threading
import urllib.request

import pytest
import toy_worlds
from live_service import call, live_app, live_service
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client import EnvFailure, EnvTimeout, NativeClient, Patience
from openmanus_rl.envs.client.batching import MAX_STEPS
from openmanus_rl.envs.service.sessions import Limits

TASK = Task("counter", "counter_0")
HASTY = Patience(start_seconds=120, step_seconds=120, close_seconds=30, tries=3, backoff_seconds=0.02)


class Gate:
    """An ASGI application in front of a real one: counts requests, and can cut or refuse answers to batches."""

    def __init__(self, app, cut=0, refuse=False):
        self.app, self.cut, self.refuse = app, cut, refuse
        self.asked = []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.asked.append(scope["path"].rpartition("/")[2])
        if not scope["path"].endswith("step_batch"):
            await self.app(scope, receive, send)
        elif self.refuse:
            await PlainTextResponse("not here", 404)(scope, receive, send)
        else:
            await self.app(scope, receive, self.cutting(send))

    def cutting(self, send):
        """Lets the steps happen but the connection end after the first lines."""
        cut, self.cut = self.cut > 0, self.cut - 1

        async def pass_on(message):
            if cut and message["type"] == "http.response.body" and not message.get("more_body"):
                raise ConnectionError("cut")
            if cut and message["type"] == "http.response.body":
                message = {**message, "body": message["body"].splitlines(keepends=True)[0]}
            await send(message)

        return pass_on


def gated(world=toy_worlds.Counter, limits=None, **how):
    from openmanus_rl.envs.service.app import build_app

    return Gate(build_app(world, limits=limits), **how)


@pytest.fixture(scope="module")
def moody():
    with live_service(toy_worlds.Moody) as url:
        yield url


def lines_of(url, steps):
    """The lines of the answer as they come."""
    request = urllib.request.Request(f"{url}/v1/step_batch", json.dumps({"steps": steps}).encode())
    with urllib.request.urlopen(request, timeout=240) as response:
        for line in response:
            yield json.loads(line)


def test_a_batch_is_answered_line_by_line_and_a_refusal_is_its_own_lines():
    """One world sleeps until the others' lines have been read."""

    class Sleepy(toy_worlds.Moody):
        wake = threading.Event()

    with live_service(Sleepy, {"nap": 600}, Limits(step_seconds=600)) as url:
        task = {"task": {"env": "counter", "item_id": "counter_0"}}
        ids = [call("POST", f"{url}/v1/sessions", task).content["session_id"] for _ in range(3)]
        steps = [
            {"session_id": session, "action": action, "turn": 1}
            for session, action in zip(ids, ("up", "hang", "crash"), strict=True)
        ]
        lines = lines_of(url, [*steps, {"session_id": 1, "action": "up", "turn": 1}])
        by_index = {line["index"]: line for line in itertools.islice(lines, 3)}
        assert set(by_index) == {0, 2, 3}
        Sleepy.wake.set()
        by_index |= {line["index"]: line for line in lines}
        assert [by_index[index]["status"] for index in range(4)] == [200, 200, 500, 404]
        assert by_index[0]["answer"]["state_key"] == "at 1"
        assert set(by_index[3]["answer"]) == {"type", "title", "status", "detail"}
        again = {line["index"]: line for line in lines_of(url, steps[:2])}
    assert again[0] == by_index[0]
    assert again[1]["answer"]["info"] == {"acted": 1}


@pytest.mark.parametrize("body", [b"{}", b'{"steps": 3}', b'{"steps": [{"session_id": 1}]}', b"[]"])
def test_a_batch_that_is_none_is_refused_as_a_whole(moody, body):
    assert call("POST", f"{moody}/v1/step_batch", raw=body).status == 422


async def play_all(client, count, actions=("up", "up", "up")):
    handles = await asyncio.gather(*(client.start(TASK) for _ in range(count)))
    results = []
    for action in actions:
        results.append(await asyncio.gather(*(client.step(handle, action) for handle in handles)))
    return [[result for result, _ in row] for row in results]


def test_steps_of_one_moment_share_a_call_and_a_lone_one_goes_alone():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            rows = await play_all(client, 20)
            lone = await client.start(TASK)
            await client.step(lone, "up")
            return rows

    gate = gated()
    with live_app(gate) as url:
        rows = asyncio.run(play(url))
    assert all(result.success for result in rows[-1])
    assert [result.info for result in rows[1]] == [{"acted": 2}] * 20
    assert gate.asked.count("step_batch") == 3
    assert gate.asked.count("step") == 1


def test_a_batch_cut_short_is_asked_for_again_and_no_world_acts_twice():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            return await play_all(client, 8)

    gate = gated(cut=2)
    with live_app(gate) as url:
        rows = asyncio.run(play(url))
    assert [[result.info["acted"] for result in row] for row in rows] == [[1] * 8, [2] * 8, [3] * 8]
    assert gate.asked.count("step_batch") > 3


def test_a_server_without_batches_is_asked_once_and_then_stepped_one_by_one():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            return await play_all(client, 5)

    gate = gated(refuse=True)
    with live_app(gate) as url:
        rows = asyncio.run(play(url))
    assert all(result.success for result in rows[-1])
    assert (gate.asked.count("step_batch"), gate.asked.count("step")) == (1, 15)


def test_in_a_batch_a_hung_world_is_a_timeout_of_its_own_session_only():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            hung, crashed, good = [await client.start(TASK) for _ in range(3)]
            ended = []

            async def step(handle, action):
                try:
                    return await client.step(handle, action)
                finally:
                    ended.append(action)

            answers = await asyncio.gather(
                step(hung, "hang"), step(crashed, "crash"), step(good, "up"), return_exceptions=True
            )
            return answers, ended

    with live_service(toy_worlds.Moody, {"nap": 600}, Limits(step_seconds=2)) as url:
        (hung, crashed, good), ended = asyncio.run(play(url))
    assert isinstance(hung, EnvTimeout)
    assert isinstance(crashed, EnvFailure)
    assert not isinstance(crashed, EnvTimeout)
    assert good[0].reward == 1.0
    assert ended[-1] == "hang"


def test_large_batches_are_split():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            many = await play_all(client, MAX_STEPS + 1, actions=("up",))
            return many, await play_all(client, 3, ("x" * 90_000,)), await play_all(client, 3, ("👩" * 45_000,))

    gate = gated(limits=Limits(max_sessions=2000))
    with live_app(gate) as url:
        rows, long, wide = asyncio.run(play(url))
    assert len(rows[0]) == MAX_STEPS + 1
    assert len(long[0]) == len(wide[0]) == 3
    assert gate.asked.count("step_batch") == 1


def test_an_answer_of_some_other_program_to_a_batch_is_a_failure():
    def answer(verb):
        async def say(_):
            start = {"session_id": 1, "observation": "", "state_key": None, "instructions": ""}
            return JSONResponse(start, 201) if verb == "open" else PlainTextResponse("hello\n")

        return say

    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            one, other = await client.start(TASK), await client.start(TASK)
            await asyncio.gather(client.step(one, "up"), client.step(other, "up"))

    routes = [
        Route("/v1/sessions", answer("open"), methods=["POST"]),
        Route("/v1/step_batch", answer("step"), methods=["POST"]),
    ]
    with live_app(Starlette(routes=routes)) as url, pytest.raises(EnvFailure, match="not one"):
        asyncio.run(play(url))
