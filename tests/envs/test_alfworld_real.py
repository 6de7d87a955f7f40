"""ALFWorld's published games for real: TextWorld as a user installs it, and the grammar of ALFWorld's package. Slow."""

import asyncio
import json
import re
import shutil
import subprocess
import sys

import pytest
from live_service import call
from published_game import write_game

from openmanus_rl.envs import install as installing
from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.alfworld.generate import TASK_TYPES, make_game
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client import NativeClient
from openmanus_rl.envs.install import install, python_for
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.registry import make_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WHEEL = "alfworld==0.4.2"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of a real installation."""
    if not (shutil.which("cmake") and shutil.which("g++")):
        pytest.fail("A compiler is missing. Install it with: apt-get update && apt-get install -y cmake g++")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing, "HOME", tmp_path_factory.mktemp("envs"))
        install(AlfWorld, print)
        yield python_for(AlfWorld)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """ALFWorld's own package, for its grammar."""
    place = tmp_path_factory.mktemp("wheel")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), WHEEL]
    subprocess.run(fetch, check=True, timeout=300)
    return next(place.glob("*.whl"))


def words(text: str) -> list[str]:
    """Sorted, since lists are in another order there."""
    return sorted(re.findall(r"[\w/]+", text))


@pytest.mark.parametrize("wording", ["put", "move"])
def test_a_published_game_goes_as_our_rules_say_for_all_six_types(installed, wheel, tmp_path, wording):
    games = [make_game(number) for number in range(len(TASK_TYPES))]
    items = [write_game(tmp_path, "train", number, game, wheel, wording) for number, game in enumerate(games)]
    ours = AlfWorld(wording=wording)
    real = make_environment("alfworld", games_dir=str(tmp_path))
    try:
        for number, item_id in enumerate(items):
            ours_seen = ours.reset(Task("alfworld", f"alfworld_{number}"))
            assert words(real.reset(Task("alfworld", item_id)).text) == words(ours_seen.text)
            assert real.difficulty() == ours.difficulty() == TASK_TYPES[number]
            done = False
            while not done:
                in_sight = {f"examine {thing}" for thing in ours._episode.game.within_reach()}
                assert set(real.render().splitlines()) == set(ours.available_actions()) - in_sight
                action = ours.expert_action()
                result, expected = real.step(action), ours.step(action)
                assert words(result.observation.text) == words(expected.observation.text), (item_id, action)
                assert (result.reward, result.done) == (expected.reward, expected.done), (item_id, action)
                done = result.done
            assert result.success, item_id
    finally:
        real.close()


def test_textworlds_planner_wins_and_plans_again_after_a_detour(installed, wheel, tmp_path):
    item_id = write_game(tmp_path, "train", 5, make_game(5), wheel, "move")
    real = make_environment("alfworld", games_dir=str(tmp_path))
    assert real.expert_seconds > 60
    try:
        assert next(real.item_ids("train", games_dir=str(tmp_path))) == item_id
        real.reset(Task("alfworld", item_id))
        first = real.expert_action()
        for action in ("dance", "go to garbagecan 1", "look"):
            real.step(action)
        assert first in (real.expert_action(), "go to garbagecan 1")
        done = False
        while not done:
            result = real.step(real.expert_action())
            done = result.done
        assert (result.reward, result.success) == (1.0, True)
    finally:
        real.close()


def test_a_broken_game_ends_nothing_but_its_own_episode(installed, wheel, tmp_path):
    good, broken = (write_game(tmp_path, "train", number, make_game(number), wheel, "move") for number in (0, 6))
    file = tmp_path / broken / "game.tw-pddl"
    written = json.loads(file.read_text())
    file.write_text(json.dumps({**written, "pddl_problem": written["pddl_problem"][:500]}))
    real = make_environment("alfworld", games_dir=str(tmp_path))
    try:
        with pytest.raises(RuntimeError, match="Error"):
            real.reset(Task("alfworld", broken))
        assert "Your task is to" in real.reset(Task("alfworld", good)).text
    finally:
        real.close()


def test_one_planner_plays_all_games_of_a_world(installed, wheel, tmp_path):
    item_id = write_game(tmp_path, "train", 0, make_game(0), wheel, "move")
    program = f"""
from pathlib import Path
from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.base import Task
world = AlfWorld(games_dir={str(tmp_path)!r})
def mapped():
    return Path("/proc/self/maps").read_text().count("libdownward")
world.reset(Task("alfworld", {item_id!r}))
first = mapped()
for _ in range(3):
    world.reset(Task("alfworld", {item_id!r}))
print(first > 0, mapped() == first)
"""
    told = subprocess.run([installed, "-c", program], capture_output=True, text=True, check=True, timeout=300).stdout
    assert told.split() == ["True", "True"]


def test_games_start_and_are_played_side_by_side(installed, wheel, tmp_path):
    items = [write_game(tmp_path, "train", number, make_game(number), wheel, "move") for number in (0, 6, 12)]

    async def play(client: NativeClient, item_id: str) -> list[str]:
        handle = await client.start(Task("alfworld", item_id))
        seen = [handle.observation.text]
        for action in ("go to garbagecan 1", "look", "inventory"):
            result, _ = await client.step(handle, action)
            seen.append(result.observation.text)
        await client.close(handle)
        return seen

    async def play_all(url: str) -> list[list[str]]:
        async with NativeClient([url]) as client:
            return await asyncio.gather(*(play(client, item_id) for item_id in items * 4))

    with launch_servers("alfworld", options={"games_dir": str(tmp_path)}, log_dir=tmp_path) as servers:
        played = asyncio.run(play_all(servers.urls[0]))
    assert played == played[:3] * 4
    assert len({tuple(seen) for seen in played}) == 3


def test_agentgyms_routes_play_a_published_game_by_its_number(installed, wheel, tmp_path):
    item_id = write_game(tmp_path, "train", 0, make_game(0), wheel, "put")
    _, task_type, trial = item_id.split("/")
    (tmp_path / "train.json").write_text(json.dumps([{"task_type": task_type, "task_id": trial}]))
    options = {"games_dir": str(tmp_path), "mappings": str(tmp_path / "train.json")}
    ours = AlfWorld()
    ours.reset(Task("alfworld", "alfworld_0"))
    with launch_servers("alfworld", options=options, log_dir=tmp_path) as servers:
        url = servers.urls[0]
        session = call("POST", f"{url}/create").content
        reset = call("POST", f"{url}/reset", {**session, "game": 0, "world_type": "Text"}).content
        assert reset["task_type"] == f"{task_type}/{trial}"
        assert set(reset["available_actions"]) == set(ours.available_actions())
        done = False
        while not done:
            action = ours.expert_action()
            ours.step(action)
            answer = call("POST", f"{url}/step", {**session, "action": action}).content
            done = answer["done"]
        assert answer["reward"] == 1.0
        assert call("POST", f"{url}/close", session).content is True
