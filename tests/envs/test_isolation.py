"""Where worlds run: one that hangs, dies or is slow is the end, or the delay, of its own session only."""

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from live_service import call, live_service
from toy_worlds import Apart, Counter

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.service.runner import WorldCrashed
from openmanus_rl.envs.service.sessions import Limits, Sessions
from openmanus_rl.envs.service.world_inline import SURE_CALLS
from openmanus_rl.envs.service.world_process import Nursery

WORLDS = Path(__file__).with_name("toy_worlds.py")
TASK = {"env": "counter", "item_id": "counter_0"}


def start(url, **more):
    answer = call("POST", f"{url}/v1/sessions", {"task": {**TASK, **more}})
    assert answer.status == 201, answer
    return f"{url}/v1/sessions/{answer.content['session_id']}"


def step(session, action, turn):
    return call("POST", f"{session}/step", {"action": action, "turn": turn})


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=240.0):
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)
    return condition()


@pytest.fixture(scope="module")
def apart():
    with live_service(Apart) as url:
        yield url


@pytest.fixture(scope="module")
def impatient():
    """A server that waits for a world, but not for long."""
    with live_service(Apart, {"nap": 600}, Limits(step_seconds=2)) as url:
        yield url


def test_a_world_in_a_process_plays_like_any_other(apart):
    session, other = start(apart), start(apart, item_id="counter_1")
    steps = [step(session, "up", turn).content for turn in (1, 2)]
    assert [one["state_key"] for one in steps] == ["at 1", "at 2"]
    pids = {steps[0]["info"]["pid"], steps[1]["info"]["pid"], step(other, "up", 1).content["info"]["pid"]}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert call("GET", f"{session}/expert_action").content == {"action": "up"}
    assert step(session, "up", 3).content["success"]
    assert step(session, "up", 4).status == 409


def test_errors_of_a_world_in_a_process_are_told_in_its_words(apart):
    refused = call("POST", f"{apart}/v1/sessions", {"task": {**TASK, "item_id": "other_0"}})
    assert refused.status == 422
    assert "not an item of counter. For example: counter_0." in refused.content["detail"]
    assert step(start(apart), "lambda", 1).status == 501
    assert step(start(apart), "crash", 1).status == 500


@pytest.mark.parametrize(("action", "status"), [("hang", 504), ("spin", 504), ("die", 500)])
def test_a_process_that_hangs_or_dies_ends_with_its_session_and_no_other(impatient, action, status):
    bad, good = start(impatient), start(impatient)
    pid = step(bad, "wait", 1).content["info"]["pid"]
    assert step(bad, action, 2).status == status
    assert step(bad, "up", 3).status == 404
    assert step(good, "up", 1).status == 200
    assert wait_until(lambda: not is_running(pid))


def test_a_closed_session_takes_its_process_with_it(apart):
    session = start(apart)
    pid = step(session, "wait", 1).content["info"]["pid"]
    call("DELETE", session)
    assert wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize("world", [Apart, Counter])
def test_a_machine_without_room_for_another_world_is_a_full_server_and_no_session_stays(world, monkeypatch):
    class NoThread:
        def __init__(self, **_):
            pass

        def start(self):
            raise RuntimeError("can't start new thread")

    def no_sockets(*_):
        raise OSError(24, "Too many open files")

    with live_service(world) as url:
        with monkeypatch.context() as exhausted:
            exhausted.setattr("openmanus_rl.envs.service.world_process.socket.socketpair", no_sockets)
            exhausted.setattr("openmanus_rl.envs.service.world_thread.threading", SimpleNamespace(Thread=NoThread))
            refused = call("POST", f"{url}/v1/sessions", {"task": TASK})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "no room" in refused.content["detail"]
        assert call("GET", f"{url}/health").content["sessions"] == 0
        assert step(start(url), "up", 1).status == 200


def test_a_server_that_stops_does_not_wait_for_a_world_that_is_still_imported(tmp_path):
    world = tmp_path / "slow_world.py"
    world.write_text("import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(500)\n")
    nursery = Nursery(f"{world}:World", {})
    failures = []

    def fork():
        try:
            nursery.fork()
        except WorldCrashed as error:
            failures.append(error)

    threads = [threading.Thread(target=fork) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert wait_until((tmp_path / "begun").exists)
    began = time.monotonic()
    nursery.close()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 30
    assert len(failures) == 2


def test_no_process_outlives_its_server(tmp_path):
    with launch_servers(f"{WORLDS}:Apart", log_dir=tmp_path) as servers:
        sessions = [start(servers.urls[0]) for _ in range(2)]
        pids = [step(session, "wait", 1).content["info"]["pid"] for session in sessions]
        threading.Thread(target=lambda: _ignoring_the_end(sessions[0]), daemon=True).start()
        time.sleep(0.2)
        os.kill(servers.pids[0], 9)
        assert wait_until(lambda: not any(map(is_running, pids)))


def _ignoring_the_end(session):
    with contextlib.suppress(OSError):
        step(session, "hang", 2)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    with launch_servers(f"{WORLDS}:Quick", options={"nap": 600}, log_dir=tmp_path_factory.mktemp("log")) as servers:
        yield servers.urls[0]


def test_quick_steps_run_on_the_event_loop_and_a_slow_session_moves_to_a_thread_until_its_next_task(quick):
    session, other = start(quick), start(quick)
    assert step(session, "wait", 1).content["info"]["on_event_loop"]
    for turn in range(2, 5):
        assert step(session, "doze", turn).status == 200
    assert not step(session, "wait", 5).content["info"]["on_event_loop"]
    assert step(other, "wait", 1).content["info"]["on_event_loop"]
    call("POST", f"{session}/reset", {"task": TASK})
    assert step(session, "wait", 1).content["info"]["on_event_loop"]


@pytest.mark.parametrize("action", ["hang", "spin", "backtrack"])
def test_a_step_that_hangs_on_the_event_loop_is_cut_off_and_the_server_goes_on(quick, action):
    bad, good = start(quick), start(quick)
    assert step(bad, action, 1).status == 504
    assert step(bad, "up", 2).status == 404
    assert step(good, "up", 1).content["info"]["on_event_loop"]


def test_a_crash_on_the_event_loop_ends_its_session_only(quick):
    bad, good = start(quick), start(quick)
    for action in ("crash", "exit"):
        bad = start(quick)
        assert step(bad, action, 1).status == 500
        assert step(bad, "up", 2).status == 404
    assert step(good, "up", 1).status == 200


@pytest.mark.parametrize(("seconds", "threads"), [(0.0, 0), (0.01, 1)], ids=["quick", "slow"])
def test_a_world_that_is_known_to_be_quick_needs_no_thread(seconds, threads):
    class Inline(Counter):
        isolation = "inline"

        def reset(self, task):
            time.sleep(seconds)
            return super().reset(task)

    async def threads_of_a_session() -> int:
        sessions = Sessions(Inline, {}, Limits(), inline=True)
        for _ in range(SURE_CALLS):
            await sessions.close((await sessions.open({}, Task("counter", "counter_0"))).id)
        wait_until(lambda: threading.active_count() == before)
        await sessions.open({}, Task("counter", "counter_0"))
        return threading.active_count() - before

    before = threading.active_count()
    assert asyncio.run(threads_of_a_session()) == threads
