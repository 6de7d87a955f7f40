"""The clients against real servers, and against servers that refuse, fall silent or lose an answer."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import toy_worlds
from live_service import call, live_app, live_service
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client import AgentGymClient, EnvFailure, EnvTimeout, NativeClient, Patience
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.errors import UserError

TRANSCRIPTS = Path(__file__).parents[2].parent / "shared" / "transcripts"
TASK = Task("counter", "counter_0", ground_truth="the truth", extra={"level": 1})
HASTY = Patience(start_seconds=120, step_seconds=120, close_seconds=30, tries=3, backoff_seconds=0.02)
"""Tries soon again, but has time for a slow machine."""


@pytest.fixture(scope="module")
def counter():
    with live_service(toy_worlds.Counter) as url:
        yield url


@contextlib.contextmanager
def proxy(upstream, lose=()):
    """Passes requests on to `upstream` and keeps them; answers whose number is in `lose` get lost."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                with caller:
                    caller.settimeout(120)
                    head = request = receive_message(caller)
                    seen.append(request)
                    number = len(seen)
                    with socket.create_connection((urlsplit(upstream).hostname, urlsplit(upstream).port)) as server:
                        server.sendall(head)
                        answer = receive_message(server)
                    if number not in lose:
                        caller.sendall(answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
    finally:
        listener.close()


def receive_message(connection):
    """One HTTP message with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def silent_server():
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def refusing_server():
    """Holds a port and refuses connections."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def test_an_episode_costs_one_call_to_start_one_a_step_and_one_to_close(counter):
    async def play(url):
        async with NativeClient([url]) as client:
            handle = await client.start(TASK)
            assert handle.observation.text == "native: 0 of 3"
            assert (handle.state_key, handle.instructions) == ("at 0", "Count to 3. Actions: up.")
            steps = [await client.step(handle, "up") for _ in range(3)]
            await client.close(handle)
            await client.close(handle)
            return handle, steps

    with proxy(counter) as (url, seen):
        handle, steps = asyncio.run(play(url))
    assert [key for _, key in steps] == ["at 1", "at 2", "at 3"]
    assert [result.success for result, _ in steps] == [False, False, True]
    assert steps[-1][0].info == {"acted": 3}
    assert (handle.turn, handle.total, handle.done) == (3, 6.0, True)
    assert len(seen) == 5


def test_ground_truth_never_leaves(counter):
    async def play(url):
        async with NativeClient([url]) as client:
            handle = await client.start(TASK)
            await client.step(handle, "up")

    with proxy(counter) as (url, seen):
        asyncio.run(play(url))
    assert b"counter_0" in seen[0]
    assert not any(b"the truth" in request for request in seen)


def test_a_lost_answer_is_asked_for_again_and_the_world_acts_once(counter):
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            handle = await client.start(TASK)
            first, _ = await client.step(handle, "up")
            second, _ = await client.step(handle, "up")
            return first, second

    with proxy(counter, lose={2, 3}) as (url, seen):
        first, second = asyncio.run(play(url))
    assert len(seen) == 5
    assert [first.info, second.info] == [{"acted": 1}, {"acted": 2}]


def test_a_lost_answer_of_an_agentgym_step_is_a_failure_and_never_a_second_step():
    async def play(url):
        async with AgentGymClient("textcraft", [url], patience=HASTY) as client:
            handle = await client.start(Task("textcraft", "textcraft_0"))
            with pytest.raises(EnvFailure, match="connection was lost"):
                await client.step(handle, "up")

    with live_service(toy_worlds.Textcraft) as upstream, proxy(upstream, lose={3}) as (url, seen):
        asyncio.run(play(url))
    assert sum(b"POST /step" in request for request in seen) == 1


def test_a_refused_connection_is_tried_within_the_budget_and_then_told_with_address_and_tries():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            await client.start(TASK)

    with refusing_server() as url, pytest.raises(EnvFailure, match=f"3 failed tries.*{url}"):
        asyncio.run(play(url))


@pytest.mark.parametrize("client", [NativeClient, lambda *given, **more: AgentGymClient("maze", *given, **more)])
def test_a_silent_server_is_a_timeout_within_the_deadline(client):
    async def play(url):
        async with client([url], patience=Patience(start_seconds=0.5)) as playing:
            await playing.start(Task("maze", "maze_0"))

    began = time.monotonic()
    with silent_server() as url, pytest.raises(EnvTimeout, match=url):
        asyncio.run(play(url))
    assert time.monotonic() - began < 60


def test_a_server_that_dies_in_mid_episode_is_a_failure_with_its_reason():
    async def play():
        async with NativeClient([url], patience=HASTY) as client:
            handle = await client.start(TASK)
            service.close()
            with pytest.raises(EnvFailure, match=rf"{url}.*3 tries"):
                await client.step(handle, "up")
            await client.close(handle)

    service = contextlib.ExitStack()
    with service:
        url = service.enter_context(live_service(toy_worlds.Counter))
        asyncio.run(play())


@pytest.mark.parametrize("broken", [refusing_server, silent_server])
def test_a_start_fails_over_to_a_server_that_works(counter, broken):
    async def play(bad):
        async with NativeClient([bad, counter], patience=Patience(start_seconds=4, tries=3)) as client:
            assert (await client.start(TASK)).url == counter
            await asyncio.sleep(0.3)
            async with asyncio.timeout(1.5):  # a silent server is not waited for again at once
                return (await client.start(TASK)).url

    with broken() as bad:
        assert asyncio.run(play(bad)) == counter


def test_a_full_server_passes_the_start_to_another(counter):
    async def play(small):
        async with NativeClient([small, counter], patience=HASTY) as client:
            handles = [await client.start(TASK) for _ in range(5)]
            return [handle.url for handle in handles]

    with live_service(toy_worlds.Counter, limits=Limits(max_sessions=1)) as small:
        urls = asyncio.run(play(small))
    assert urls.count(small) == 1


def test_a_start_waits_for_a_full_server_to_have_room():
    async def play(url):
        async with NativeClient([url], patience=Patience(start_seconds=120, tries=1)) as client:
            first = await client.start(TASK)
            waiting = asyncio.create_task(client.start(TASK))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await client.close(first)
            await asyncio.wait_for(waiting, 120)

    with live_service(toy_worlds.Counter, limits=Limits(max_sessions=1)) as url:
        asyncio.run(play(url))


def test_new_sessions_go_where_the_fewest_are(counter):
    async def play(other):
        async with NativeClient([counter, other]) as client:
            handles = await asyncio.gather(*(client.start(TASK) for _ in range(6)))
            assert sorted(handle.url for handle in handles) == sorted([counter, other] * 3)
            for handle in handles:
                if handle.url == other:
                    await client.close(handle)
            assert {(await client.start(TASK)).url for _ in range(3)} == {other}

    with live_service(toy_worlds.Counter) as other:
        asyncio.run(play(other))


def test_a_hung_world_is_a_timeout_and_a_crashed_one_a_failure():
    async def play(url, action):
        async with NativeClient([url]) as client:
            session = await client.start(TASK)
            with pytest.raises(EnvFailure) as failure:
                await client.step(session, action)
            await client.close(session)
            return failure.value

    with live_service(toy_worlds.Moody, {"nap": 600}, Limits(step_seconds=0.2)) as url:
        hung = asyncio.run(play(url, "hang"))
    assert isinstance(hung, EnvTimeout)
    assert "did not answer for 0.2 s" in str(hung)
    with live_service(toy_worlds.Moody) as url:
        crashed = asyncio.run(play(url, "crash"))
    assert not isinstance(crashed, EnvTimeout)
    assert "the world raised ValueError" in str(crashed)


def test_a_task_the_world_refuses_is_told_in_its_words(counter):
    async def play():
        async with NativeClient([counter]) as client:
            await client.start(Task("counter", "other_7"))

    with pytest.raises(EnvFailure, match="other_7"):
        asyncio.run(play())


def test_an_answer_of_some_other_program_is_a_failure():
    async def answer(_):
        return JSONResponse(["hello"], 201)

    async def play(url):
        async with NativeClient([url]) as client:
            await client.start(TASK)

    app = Starlette(routes=[Route("/v1/sessions", answer, methods=["POST"])])
    with live_app(app) as url, pytest.raises(EnvFailure, match="not one of an OpenManus-RL"):
        asyncio.run(play(url))


def test_snapshot_restore_and_the_expert_reach_the_world(counter):
    async def play():
        async with NativeClient([counter]) as client:
            handle = await client.start(TASK)
            assert await client.expert_action(handle) == "up"
            await client.step(handle, "up")
            kept = await client.snapshot(handle)
            for _ in range(2):
                await client.step(handle, "up")
            assert handle.done
            observation, key = await client.restore(handle, kept)
            assert (observation.text, key, handle.turn, handle.done) == ("native: 1 of 3", "at 1", 1, False)
            _, key = await client.step(handle, "up")
            assert key == "at 2"

    asyncio.run(play())


def test_a_fork_is_a_session_of_its_own_on_the_same_server_and_in_the_same_state(counter):
    async def play(urls):
        async with NativeClient(urls) as client:
            handles = [await client.start(TASK) for _ in range(4)]
            assert {handle.url for handle in handles} == set(urls)
            for handle in handles:
                await client.step(handle, "up")
                copy = await client.fork(handle)
                assert (copy.url, copy.turn, copy.total) == (handle.url, 1, handle.total)
                assert copy.session != handle.session
                assert (await client.step(copy, "up"))[1] == "at 2"
                assert (await client.step(handle, "up"))[1] == "at 2", "the copy's step did not touch it"
                await client.close(copy)
                await client.close(handle)

    with live_service(toy_worlds.Counter) as other:
        asyncio.run(play([counter, other]))
        assert call("GET", f"{other}/health").content["sessions"] == 0


def test_a_world_that_cannot_be_copied_says_so_and_leaves_no_session_behind():
    async def play(url):
        async with NativeClient([url], patience=HASTY) as client:
            handle = await client.start(TASK)
            with pytest.raises(EnvFailure, match="cannot be snapshotted"):
                await client.fork(handle)
            await client.close(handle)

    with live_service(toy_worlds.Moody) as url:
        asyncio.run(play(url))
        assert call("GET", f"{url}/health").content["sessions"] == 0


def test_the_token_opens_a_guarded_server():
    async def play(url, token):
        async with NativeClient([url], token=token) as client:
            return await client.start(TASK)

    with live_service(toy_worlds.Counter, token="s3cret") as url:
        asyncio.run(play(url, "s3cret"))
        with pytest.raises(EnvFailure, match="401"):
            asyncio.run(play(url, "wrong"))


def test_hundreds_of_sessions_play_at_once(counter):
    async def play_one(client):
        handle = await client.start(TASK)
        for _ in range(3):
            result, _ = await client.step(handle, "up")
        await client.close(handle)
        return result.success

    async def play():
        async with NativeClient([counter], patience=HASTY) as client:
            return await asyncio.gather(*(play_one(client) for _ in range(200)))

    assert all(asyncio.run(play()))
    assert call("GET", f"{counter}/health").content["sessions"] < 50


@pytest.mark.parametrize(
    ("world", "prefix"), [(toy_worlds.Textcraft, ""), (toy_worlds.Maze, "/maze"), (toy_worlds.Wordle, "/wordle/")]
)
def test_the_agentgym_client_plays_agentgym_routes(world, prefix):
    async def play(url):
        async with AgentGymClient(world.name, [url], patience=HASTY) as client:
            handle = await client.start(Task(world.name, f"{world.name}_1"))
            assert "1 of 3" in handle.observation.text
            assert handle.instructions
            first, key = await client.step(handle, "up")
            last, _ = await client.step(handle, "up")
            assert (first.reward, first.done, last.done, last.success, key) == (2.0, False, True, True, None)
            with pytest.raises(EnvFailure, match="over"):
                await client.step(handle, "up")
            await client.close(handle)

    with live_service(world) as url:
        asyncio.run(play(url))
        asyncio.run(play(url + prefix))


def test_an_error_in_an_agentgym_answer_is_a_failure():
    async def play(url):
        async with AgentGymClient("textcraft", [url], patience=HASTY) as client:
            handle = await client.start(Task("textcraft", "textcraft_0"))
            call("POST", f"{url}/close", {"id": handle.session})
            with pytest.raises(EnvFailure, match="no session"):
                await client.step(handle, "up")

    with live_service(toy_worlds.Textcraft) as url:
        asyncio.run(play(url))


def test_an_item_without_a_number_is_a_users_mistake():
    with pytest.raises(UserError, match="names no task"):
        asyncio.run(AgentGymClient("maze", ["http://127.0.0.1:1"]).start(Task("maze", "first")))


def test_an_unknown_family_is_a_users_mistake():
    with pytest.raises(UserError, match="Did you mean maze"):
        AgentGymClient("mase", ["http://127.0.0.1:1"])


def recorded_episode(name):
    """The create, the reset and the steps of a recorded episode: one that ended, if there is one."""
    path = TRANSCRIPTS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"there are no recorded conversations at {TRANSCRIPTS}")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    episodes, running = [], []
    for record in records:
        verb = verb_of(record)
        if verb == "reset" and "error" not in record["response"]:
            running = [record]
            episodes.append(running)
        elif verb == "step" and "error" not in record["response"] and not running[-1]["response"].get("done"):
            running.append(record)
    ended = [episode for episode in episodes if episode[-1]["response"].get("done")]
    create = next(record for record in records if verb_of(record) == "create")
    return create, max(ended or episodes, key=len)


def verb_of(record):
    return urlsplit(record["url"]).path.rpartition("/")[2]


@pytest.mark.parametrize(
    ("name", "number_key", "ends", "success", "total"),
    [
        ("textcraft", "data_idx", True, True, 1.0),
        ("babyai", "data_idx", False, False, 0.0),
        ("sciworld", "data_idx", True, False, -100.0),
        ("wordle", "seed", False, False, 0.0),
    ],
)
def test_the_client_understands_what_real_agentgym_servers_answered(name, number_key, ends, success, total):
    create, (reset, *steps) = recorded_episode(name)
    answers = [create, reset, *steps]
    asked = []

    async def answer(request):
        body = await request.json() if await request.body() else None
        asked.append((request.url.path, body))
        if request.path_params["verb"] == "close":
            return JSONResponse(True)
        return JSONResponse(answers[len(asked) - 1]["response"])

    async def play(url):
        async with AgentGymClient(name, [url], patience=HASTY) as client:
            handle = await client.start(Task(name, f"{name}_{reset['request_json'][number_key]}"))
            results = [(await client.step(handle, step["request_json"]["action"]))[0] for step in steps]
            await client.close(handle)
            return handle, results

    app = Starlette(routes=[Route(path, answer, methods=["POST"]) for path in ("/{verb}", "/wordle/{verb}")])
    with live_app(app) as url:
        handle, results = asyncio.run(play(url))
    assert len(steps) >= 3
    assert [body for _, body in asked[1 : len(answers)]] == [record["request_json"] for record in answers[1:]]
    assert [path for path, _ in asked[: len(answers)]] == [urlsplit(record["url"]).path for record in answers]
    assert reset["response"]["observation"] in handle.observation.text
    assert [result.observation.text for result in results] == [step["response"]["observation"] for step in steps]
    assert (results[-1].done, results[-1].success) == (ends, success)
    assert sum(result.reward for result in results) == handle.total == total
