"""ScienceWorld for real: installed as a user installs it, with Java, served in its own virtualenv. Slow."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_service import call

from openmanus_rl.envs import install as installing
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.check.run import FAST_CHECKS, check_world
from openmanus_rl.envs.client import NativeClient
from openmanus_rl.envs.install import install, python_for
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.envs.sciworld import SciWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of a real installation; without Java these tests fail with the line that installs it."""
    if shutil.which("java") is None:
        pytest.fail("Java is missing. Install it with: apt-get update && apt-get install -y default-jre-headless")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing, "HOME", tmp_path_factory.mktemp("envs"))
        install(SciWorld, print)
        yield python_for(SciWorld)


@pytest.fixture(scope="module")
def server(installed, tmp_path_factory):
    with launch_servers("sciworld", log_dir=tmp_path_factory.mktemp("logs")) as servers:
        yield servers.urls[0]


def run(python: str, program: str) -> str:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, timeout=900).stdout


def java_children(pid: int) -> list[int]:
    """The Java processes that a process has started."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "java" and int(rest.split()[1]) == pid:
            children.append(int(stat.parent.name))
    return children


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.1)
    return condition()


def test_the_virtualenv_has_no_torch(installed):
    assert installed != sys.executable
    assert run(
        installed, "import importlib.util as u; print(u.find_spec('torch'), bool(u.find_spec('scienceworld')))"
    ) == ("None True\n")


def test_the_table_of_tasks_and_splits_is_the_simulators(installed):
    program = """
from openmanus_rl.envs.base import SPLITS
from openmanus_rl.envs.sciworld.simulator import Simulator
from openmanus_rl.envs.sciworld.tasks import VARIATIONS, ScienceTask, variations
simulator = Simulator()
assert sorted(simulator.listed("getTaskNames")) == sorted(VARIATIONS)
for name, total in VARIATIONS.items():
    assert simulator.said("getTaskMaxVariations", name) == str(total), name
for name in ("boil", "use-thermometer", "identify-life-stages-1", "identify-life-stages-2", "chemistry-mix"):
    simulator.load(ScienceTask(name, 0))
    for split, method in zip(SPLITS, ("getVariationsTrain", "getVariationsDev", "getVariationsTest"), strict=True):
        assert simulator.listed(method) == [str(n) for n in variations(name, split)], (name, split)
simulator.kill()
print("same")
"""
    assert run(installed, program) == "same\n"


def test_the_expert_does_tasks_and_the_same_task_starts_the_same_way(installed):
    science = make_environment("sciworld")
    try:
        for item_id in ("boil-0", "find-plant-3", "power-component-2", "chemistry-mix-5"):
            seen = science.reset(Task("sciworld", item_id))
            assert seen == science.reset(Task("sciworld", item_id))
            total, done = 0.0, False
            while not done:
                result = science.step(science.expert_action())
                total += result.reward
                done = result.done
            assert (item_id, total, result.success) == (item_id, 100.0, True)
    finally:
        science.close()


def test_a_task_starts_the_same_way_whatever_the_simulator_played_before(installed):
    science = make_environment("sciworld")
    try:
        seen = [science.reset(Task("sciworld", item_id)).text for item_id in ("boil-14", "melt-14", "boil-0") * 3]
    finally:
        science.close()
    assert len(set(seen)) == 3


def test_the_same_actions_bring_the_same_in_another_process(installed):
    program = """
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.sciworld import SciWorld
world = SciWorld()
for item_id in ("grow-plant-1", "mendelian-genetics-known-plant-3", "use-thermometer-7"):
    print(world.reset(Task("sciworld", item_id)).text)
    for turn in range(12):
        action = world.random_action((turn * 0.37) % 1)
        print(action, world.step(action))
world.close()
"""
    assert run(installed, program) == run(installed, program)


@pytest.mark.timeout(3600)
def test_it_passes_every_fast_check(installed, tmp_path, monkeypatch):
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "envs").symlink_to(installing.HOME)
    monkeypatch.chdir(tmp_path)  # so that processes which the checks start find the installation
    results = list(check_world("sciworld", {"simulators": 4}, checks=FAST_CHECKS, seconds=60.0))
    assert [(result.name, result.status, result.detail) for result in results if result.status != "passed"] == []
    assert len(results) == len(FAST_CHECKS)


def test_agentgyms_routes_play_a_real_episode(server):
    session = call("POST", f"{server}/create").content
    reset = call("POST", f"{server}/reset", {**session, "data_idx": 0}).content
    assert (reset["task_name"], reset["var_num"], reset["score"]) == ("boil", 0, 0)
    assert reset["task_description"].startswith("Your task is to boil water.")
    assert "hallway" in reset["observation"]
    hint = call("GET", f"{server}/action_hint?id={session['id']}").content
    assert "focus on OBJ" in hint["possible_actions"]
    assert "air" in hint["possible_objects"]
    unknown = call("POST", f"{server}/step", {**session, "action": "open door to nowhere"}).content
    assert unknown == {"observation": "No known action matches that input.", "reward": 0.0, "score": 0, "done": False}
    failed = call("POST", f"{server}/step", {**session, "action": "focus on air"}).content
    assert failed == {"observation": "You focus on the air.", "reward": -100.0, "score": -100, "done": True}
    assert call("POST", f"{server}/close", session).content is True


def test_sessions_play_side_by_side_and_never_see_each_other(server):
    async def play(client: NativeClient, number: int) -> list[str]:
        handle = await client.start(Task("sciworld", f"find-plant-{number % 2}"))
        seen = [handle.observation.text]
        for action in ("look around", "open door to hallway", "inventory", "wait1", "look around"):
            result, _ = await client.step(handle, action)
            seen.append(result.observation.text)
        await client.close(handle)
        return seen

    async def play_all() -> list[list[str]]:
        async with NativeClient([server]) as client:
            return await asyncio.gather(*(play(client, number) for number in range(6)))

    played = asyncio.run(play_all())
    assert played[0] == played[2] == played[4]
    assert played[1] == played[3] == played[5]
    assert played[0] != played[1]


def test_no_simulator_outlives_a_server_that_is_killed(installed, tmp_path):
    with launch_servers("sciworld", log_dir=tmp_path) as servers:
        (pid,) = servers.pids
        for item_id in ("boil-0", "boil-1"):
            assert (
                call("POST", f"{servers.urls[0]}/v1/sessions", {"task": {"env": "sciworld", "item_id": item_id}}).status
                == 201
            )
        simulators = java_children(pid)
        assert len(simulators) == 2
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not any(map(is_alive, simulators)), 20)


def test_a_closed_session_leaves_its_simulator_to_the_next(installed, tmp_path):
    with launch_servers("sciworld", log_dir=tmp_path) as servers:
        url, (pid,) = servers.urls[0], servers.pids
        for item_id in ("boil-0", "melt-1", "freeze-2"):
            task = {"task": {"env": "sciworld", "item_id": item_id}}
            session = call("POST", f"{url}/v1/sessions", task).content["session_id"]
            assert call("DELETE", f"{url}/v1/sessions/{session}").status == 204
        assert len(java_children(pid)) == 1


def test_a_simulator_that_dies_fails_its_own_session_only(server, installed, tmp_path):
    with launch_servers("sciworld", log_dir=tmp_path) as servers:
        url, (pid,) = servers.urls[0], servers.pids
        first, second = (
            call("POST", f"{url}/v1/sessions", {"task": {"env": "sciworld", "item_id": f"boil-{n}"}}).content[
                "session_id"
            ]
            for n in range(2)
        )
        os.kill(java_children(pid)[0], signal.SIGKILL)
        answers = [
            call("POST", f"{url}/v1/sessions/{session}/step", {"action": "look around", "turn": 1}).status
            for session in (first, second)
        ]
        assert sorted(answers) == [200, 500]


def test_java_is_left_with_nothing_of_a_step_though_pythons_collector_never_runs(installed):
    held = run(
        installed,
        "import gc\n"
        "from openmanus_rl.envs.sciworld.simulator import Simulator\n"
        "from openmanus_rl.envs.sciworld.tasks import ScienceTask\n"
        "gc.disable()\n"
        "simulator = Simulator()\n"
        "for _ in range(3):\n"
        "    simulator.load(ScienceTask('boil', 0))\n"
        "    for _ in range(20):\n"
        "        simulator.step('look around')\n"
        "    simulator.listed('getPossibleActions')\n"
        "    print(simulator._gateway.java_gateway_server.getGateway().getBindings().size())\n"
        "simulator.kill()\n",
    ).split()
    assert int(held[2]) - int(held[1]) == int(held[1]) - int(held[0]) <= 5
