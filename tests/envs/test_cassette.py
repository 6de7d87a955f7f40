"""Cassettes: what was recorded is played back to the letter, and a player who deviates is told where."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_worlds
from live_service import call, live_app, live_service

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.cassette import Exchange, Recorder, ReplayServer, forwarding_app, read_cassette
from openmanus_rl.envs.client import AgentGymClient, EnvFailure, NativeClient, Patience
from openmanus_rl.envs.service.app import build_app
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.errors import UserError

TRANSCRIPTS = Path(__file__).parents[2].parent / "shared" / "transcripts"
HASTY = Patience(start_seconds=5.0, step_seconds=5.0, close_seconds=2.0, tries=2, backoff_seconds=0.02)
PLANS = [(0, ("up", "wait", "up", "up")), (0, ("up", "up", "up")), (1, ("wait", "up")), (0, ("up", "wait", "up", "up"))]


async def play(url, number, actions, agentgym=False):
    make = (
        (lambda: AgentGymClient("textcraft", [url], patience=HASTY))
        if agentgym
        else lambda: NativeClient([url], patience=HASTY)
    )
    name = "textcraft" if agentgym else "counter"
    async with make() as client:
        handle = await client.start(Task(name, f"{name}_{number}"))
        seen = [handle.observation.text, handle.state_key, handle.instructions]
        for action in actions:
            result, key = await client.step(handle, action)
            seen.append((result, key))
        await client.close(handle)
        return seen


async def play_together(url, plans):
    """With one client, so that steps share calls."""
    async with NativeClient([url], patience=HASTY) as client:

        async def one(number, actions):
            handle = await client.start(Task("counter", f"counter_{number}"))
            return [await client.step(handle, action) for action in actions], await client.close(handle)

        return await asyncio.gather(*(one(*plan) for plan in plans))


def recorded(tmp_path, app, playing):
    cassette = tmp_path / "traffic.jsonl"
    with live_app(Recorder(app, cassette)) as url:
        seen = asyncio.run(playing(url))
    return cassette, seen


def replayed(cassette, playing):
    server = ReplayServer(read_cassette(cassette))
    with live_app(server.app()) as url:
        seen = asyncio.run(playing(url))
    return server, seen


@pytest.mark.parametrize("agentgym", [False, True])
def test_a_replay_gives_every_session_what_it_got_whoever_comes_first(tmp_path, agentgym):
    world = toy_worlds.Textcraft if agentgym else toy_worlds.Counter

    async def in_order(url):
        return [await play(url, *plan, agentgym=agentgym) for plan in PLANS]

    async def backwards(url):
        return [await play(url, *plan, agentgym=agentgym) for plan in reversed(PLANS)][::-1]

    async def at_once(url):
        return await asyncio.gather(*(play(url, *plan, agentgym=agentgym) for plan in PLANS))

    cassette, seen = recorded(tmp_path, build_app(world), in_order)
    for playing in (in_order, backwards, at_once):
        server, again = replayed(cassette, playing)
        assert again == seen
        assert server.deviations == []


def test_batches_are_recorded_as_the_steps_they_hold_and_played_back_as_batches(tmp_path):
    async def playing(url):
        return await play_together(url, PLANS)

    cassette, seen = recorded(tmp_path, build_app(toy_worlds.Counter), playing)
    assert not any("batch" in exchange.url for exchange in read_cassette(cassette))
    assert sum(exchange.steps for exchange in read_cassette(cassette)) == 13
    server, again = replayed(cassette, playing)
    assert again == seen
    assert server.deviations == []


def test_a_recorder_stands_before_a_server_elsewhere(tmp_path):
    async def playing(url):
        return await play(url, *PLANS[0]), await play_together(url, PLANS[:2])

    with live_service(toy_worlds.Counter) as upstream:
        cassette, seen = recorded(tmp_path, forwarding_app(upstream), playing)
    server, again = replayed(cassette, playing)
    assert again == seen
    assert server.deviations == []


def test_a_server_that_does_not_answer_is_passed_on_as_a_failure(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with live_app(Recorder(forwarding_app(f"http://127.0.0.1:{port}"), tmp_path / "x.jsonl")) as url:
        assert call("POST", f"{url}/v1/sessions", {}).status == 502


def test_failures_and_refusals_are_played_back_too(tmp_path):
    async def playing(url):
        failures = []
        for action in ("crash", "up"):
            try:
                failures.append(await play(url, 0, (action,)))
            except EnvFailure as error:
                failures.append(str(error).partition(": ")[2])
        return failures

    cassette, seen = recorded(tmp_path, build_app(toy_worlds.Moody, limits=Limits()), playing)
    assert "ValueError" in seen[0]
    _, again = replayed(cassette, playing)
    assert again == seen


def test_a_deviation_names_the_turn_and_shows_the_difference(tmp_path):
    async def playing(url):
        return await play(url, 0, ("up", "wait", "up"))

    async def otherwise(url):
        with pytest.raises(EnvFailure, match="turn 2") as failure:
            await play(url, 0, ("up", "up"))
        return str(failure.value)

    cassette, _ = recorded(tmp_path, build_app(toy_worlds.Counter), playing)
    server, told = replayed(cassette, otherwise)
    (deviation,) = server.deviations
    assert deviation in told
    assert '- "action": "wait"' in deviation
    assert '+ "action": "up"' in deviation
    assert "counter_0" in deviation


def test_more_sessions_or_more_turns_than_were_recorded_are_deviations(tmp_path):
    async def playing(url):
        return await play(url, 0, ("up",))

    async def twice(url):
        await play(url, 0, ("up",))
        with pytest.raises(EnvFailure, match="recorded 1 times, and is asked for 2 times"):
            await play(url, 0, ("up",))

    async def longer(url):
        with pytest.raises(EnvFailure, match="turn 2"):
            await play(url, 0, ("up", "up"))

    async def other(url):
        with pytest.raises(EnvFailure, match="recorded never"):
            await play(url, 5, ("up",))

    cassette, _ = recorded(tmp_path, build_app(toy_worlds.Counter), playing)
    for playing_otherwise in (twice, longer, other):
        server, _ = replayed(cassette, playing_otherwise)
        assert len(server.deviations) == 1


def test_an_answer_that_is_asked_for_again_is_no_deviation(tmp_path):
    async def playing(url):
        return await play(url, 0, ("up", "up"))

    cassette, _ = recorded(tmp_path, build_app(toy_worlds.Counter), playing)
    server = ReplayServer(read_cassette(cassette))
    with live_app(server.app()) as url:
        opened = call("POST", f"{url}/v1/sessions", json.loads(cassette.read_text().splitlines()[0])["request_json"])
        session = f"{url}/v1/sessions/{opened.content['session_id']}/step"
        first = call("POST", session, {"action": "up", "turn": 1}).content
        assert call("POST", session, {"action": "up", "turn": 1}).content == first
        assert call("POST", session, {"action": "up", "turn": 2}).content["state_key"] == "at 2"
    assert server.deviations == []


def test_a_recorded_conversation_with_a_real_agentgym_server_is_a_cassette():
    path = TRANSCRIPTS / "textcraft.jsonl"
    if not path.exists():
        pytest.skip(f"there are no recorded conversations at {TRANSCRIPTS}")
    exchanges = list(read_cassette(path))
    server = ReplayServer(exchanges)
    ids = {}
    answered = 0
    for exchange in exchanges:
        session = exchange.session
        body = exchange.request_json
        if not exchange.opens and session in ids:
            body = {**body, "id": ids[session]} if isinstance(body, dict) else body
            url = exchange.url.replace(f"id={session}", f"id={ids[session]}")
            heard = server.answer(Exchange(exchange.method, url, body))
            assert (heard.status, heard.response) == (exchange.status, exchange.answered_to(ids[session]))
            answered += 1
        elif exchange.opens:
            ids[session] = server.answer(Exchange(exchange.method, exchange.url, body)).session
    assert answered >= 5


URL_IS_A_NUMBER = b'{"method": "GET", "url": 3, "request_json": null, "status": 200, "response": null}'


@pytest.mark.parametrize("content", [b"{}\n", b"nonsense\n", b"\xd7\x00\n", b"[]", URL_IS_A_NUMBER])
def test_a_file_that_is_no_cassette_is_a_users_mistake(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match="line 1"):
        list(read_cassette(path))


def test_a_place_where_no_cassette_can_be_is_a_users_mistake(tmp_path):
    for path in (tmp_path, tmp_path / "x.jsonl"):
        with pytest.raises(UserError, match="no cassette"):
            list(read_cassette(path))
    with pytest.raises(UserError, match="cannot be written"):
        Recorder(build_app(toy_worlds.Counter), tmp_path)


ODD_BODIES = [b'{"action": "\\ud800", "turn": 1}', b"[" * 100_000, b"\xff", b"NaN"]


def test_odd_requests_are_recorded_and_played_back_as_they_were_answered(tmp_path):
    def ask(url):
        posts = [call("POST", f"{url}{path}", raw=raw) for path in ("/v1/step_batch", "/step") for raw in ODD_BODIES]
        posts.append(call("POST", f"{url}/v1/sessions/{'9' * 5000}/step", {"action": "up", "turn": 1}))
        posts.append(call("GET", f"{url}/observation?id={'9' * 5000}"))
        return [(answer.status, answer.content) for answer in posts]

    cassette = tmp_path / "x.jsonl"
    with live_app(Recorder(build_app(toy_worlds.Textcraft), cassette)) as url:
        seen = ask(url)
    server = ReplayServer(read_cassette(cassette))
    with live_app(server.app()) as url:
        assert ask(url) == seen
        assert call("GET", f"{url}/").status == 404, "what is never recorded is no deviation"
    assert server.deviations == []
    assert {status for status, _ in seen} == {404, 422}


def test_the_commands_record_a_session_play_it_back_and_exit_with_1_on_a_deviation(tmp_path):
    cassette = tmp_path / "traffic.jsonl"
    plan = {"task": {"env": "maze", "item_id": "maze_12"}}

    def step(url, session, action):
        return call("POST", f"{url}/v1/sessions/{session}/step", {"action": action, "turn": 1})

    with command("env", "record", "maze", str(cassette), "--port", "0") as (url, process):
        opened = call("POST", f"{url}/v1/sessions", plan).content
        first = step(url, opened["session_id"], "up")
    assert process.returncode == 0
    with command("env", "replay", str(cassette), "--port", "0") as (url, process):
        again = call("POST", f"{url}/v1/sessions", plan).content
        assert again["observation"] == opened["observation"]
        assert step(url, again["session_id"], "up").content == first.content
    assert process.returncode == 0
    with command("env", "replay", str(cassette), "--port", "0") as (url, process):
        again = call("POST", f"{url}/v1/sessions", plan).content
        assert step(url, again["session_id"], "left").status == 409
        assert call("POST", f"{url}/v1/sessions", plan, {"Origin": "http://elsewhere"}).status == 403, "no web page"
    assert process.returncode == 1


class command:
    """A command that serves until the end of the block, which is a Ctrl-C."""

    def __init__(self, *words):
        self.words = words

    def __enter__(self):
        code = "from openmanus_rl.cli.main import main; main()"
        self.process = subprocess.Popen([sys.executable, "-c", code, *self.words], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        url = next(word for word in line.replace(",", " ").split() if word.startswith("http"))
        give_up = time.monotonic() + 240
        while time.monotonic() < give_up:
            try:
                call("GET", f"{url}/health")
                break
            except OSError:
                time.sleep(0.05)
        return url, self.process

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(240)
        finally:
            self.process.kill()
            self.process.stdout.close()
