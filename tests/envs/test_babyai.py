"""BabyAI: missions in words, every level won by its expert, and AgentGym's routes."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from live_service import call, live_service

from openmanus_rl.envs.babyai import BabyAI
from openmanus_rl.envs.babyai.actions import choices
from openmanus_rl.envs.babyai.levels import LEVELS, can_be_won, content_of, make_level
from openmanus_rl.envs.babyai.splits import LETTERS, SEEDS, make_table, table
from openmanus_rl.envs.babyai.view import SIZE, look
from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.client.agentgym import AgentGymClient
from openmanus_rl.envs.items import seeded
from openmanus_rl.errors import UserError


def start(number, **options):
    world = BabyAI(**options)
    return world, world.reset(Task("babyai", f"babyai_{number}")).text


def item_of(level, place=0):
    """The number of a winnable item of a level."""
    column = LEVELS.index(level)
    seeds = [seed for seed, line in enumerate(table()) if line[column] != "-"]
    return seeds[place] * len(LEVELS) + column


def play_expert(world):
    results = []
    while not results or not results[-1].done:
        results.append(world.step(world.expert_action()))
    return results


def test_the_first_observation_tells_the_goal_the_view_and_what_can_be_done():
    _, text = start(0)
    goal, seen, available = text.split("\n")
    assert goal == "Your goal: go to the red ball"
    assert seen.startswith("In front of you in this room, you can see several objects: There is a ")
    assert seen.endswith("You are not carrying anything.")
    actions = json.loads(available.removeprefix("Available actions: "))
    assert actions[:2] == ["turn left", "turn right"]
    assert actions[-1] == "check available actions"


@pytest.mark.parametrize("level", ["GoToObjMazeS7", "UnblockPickup", "BossLevel", "KeyCorridorS6R3"])
def test_the_view_is_that_of_the_simulator(level):
    simulated = make_level(level, 5)
    chance = seeded(f"view {level}")
    for _ in range(60):
        grid, visible = simulated.gen_obs_grid()
        seen = {(sight.ahead, sight.right): sight.thing for sight in look(simulated).cells.values()}
        for column in range(SIZE):
            for row in range(SIZE):
                ahead, right = SIZE - 1 - row, column - SIZE // 2
                thing = grid.get(column, row)
                if (ahead, right) == (0, 0) or not visible[column, row]:
                    assert (ahead, right) not in seen
                elif (ahead, right) in seen:
                    assert (seen[ahead, right] is None) == (thing is None)
                    assert thing is None or seen[ahead, right].encode() == thing.encode()
                else:
                    assert thing is not None  # beyond the edge of the level, where the simulator draws a wall
                    assert thing.type == "wall"
        simulated.step(int(chance.random() * 6))


def test_an_object_has_one_name_in_what_is_seen_and_in_what_can_be_done():
    for number in range(40):
        level = make_level(LEVELS[number], 3)
        view = look(level)
        for text, choice in choices(level, view).items():
            if choice.kind in ("go to", "pickup"):
                assert text.endswith(view.names[choice.cell])


def test_every_action_that_is_offered_is_of_the_grammar_and_does_what_it_says():
    for number in range(0, 400, 7):
        world, _ = start(number)
        level = world._episode.level
        for text, choice in dict(world._episode.offered).items():
            assert BabyAI.grammar.parse(text)
            copy, _ = start(number)
            if copy.step(text).done:  # the mission was done on the way
                continue
            after = copy._episode.level
            if choice.kind == "go to" and choice.moves:
                assert tuple(after.front_pos) == choice.cell
            if choice.kind == "pickup":
                assert after.carrying is not None
                assert after.carrying.encode() == level.grid.get(*choice.cell).encode()
            if choice.kind == "through":
                assert tuple(after.agent_pos) == choice.cell


def test_both_spellings_of_picking_up_are_understood():
    world, _ = start(item_of("PickupLoc"))
    action = next(action for action in world._episode.offered if action.startswith("pickup"))
    assert "You are carrying" in world.step(action.replace("pickup", "Pick up")).observation.text


def test_what_is_no_action_and_what_cannot_be_done_here_change_nothing():
    world, _ = start(0)
    before = world.state_key()
    no_action = world.step("dance")
    assert no_action.info["invalid"]
    assert no_action.observation.text.startswith("The action is not recognized. Please check valid actions.\n")
    not_here = world.step("go to purple locked door 9")
    assert "invalid" not in not_here.info
    assert not_here.observation.text.startswith("You cannot go to purple locked door 9 from here.\n")
    assert "turn left, turn right" in world.step("check available actions").observation.text
    assert world.state_key() == before
    assert (no_action.reward, not_here.reward) == (0.0, 0.0)


def test_a_success_pays_the_less_the_more_moves_it_took_and_ends_the_episode():
    quick, _ = start(0)
    slow, _ = start(0)
    for _ in range(8):
        slow.step("turn left")
    rewards = [play_expert(world)[-1].reward for world in (quick, slow)]
    assert 0.1 <= rewards[1] < rewards[0] <= 1.0
    assert slow.score == rewards[1]
    with pytest.raises(EpisodeOver):
        quick.step("turn left")


def test_an_episode_is_cut_after_max_steps_and_after_the_levels_own_limit_of_moves():
    world, _ = start(0, max_steps=3)
    assert [world.step("turn left").truncated for _ in range(3)] == [False, False, True]
    world, _ = start(0, max_steps=1000)
    results = [world.step("turn left")]
    while not results[-1].done:
        results.append(world.step("turn left"))
    assert len(results) == world._episode.level.max_steps
    assert (results[-1].truncated, results[-1].terminated, results[-1].success) == (True, False, False)


@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_wins_every_level(level):
    for place in range(2):
        world, _ = start(item_of(level, place))
        assert play_expert(world)[-1].success


@pytest.mark.parametrize(
    "level", ["UnlockToUnlock", "BlockedUnlockPickup", "KeyInBox", "PutNextLocalS6N4", "MiniBossLevel"]
)
def test_the_expert_wins_after_others_have_acted_too(level):
    world, _ = start(item_of(level), max_steps=200)
    chance = seeded(f"error {level}")
    result = None
    while result is None or not result.done:
        erring = chance.random() < 0.2
        action = world.random_action(chance.random()) if erring else world.expert_action()
        if (
            action == "toggle"
            and erring
            and world._episode.level.grid.get(*world._episode.level.front_pos).type == "box"
        ):
            continue  # what a box holds may be what the mission asks for
        result = world.step(action)
    assert result.success


def test_missions_that_cannot_be_won_are_in_no_split():
    column = LEVELS.index("OpenDoorsOrderN4Debug")
    left_out = [seed for seed in range(10) if not can_be_won(make_level("OpenDoorsOrderN4Debug", seed))]
    assert left_out
    assert all(table()[seed][column] == "-" for seed in left_out)


def test_items_are_listed_without_the_simulator_and_are_in_one_split_each():
    program = """
import sys, itertools
sys.modules["minigrid"] = None
from openmanus_rl.envs.babyai import BabyAI
print(*itertools.islice(BabyAI.item_ids("test"), 5))
try:
    BabyAI()
except Exception as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first = [f"babyai_{number}" for number in [int(word.split("_")[1]) for word in told.splitlines()[0].split()]]
    assert first == list(BabyAI.item_ids("test"))[:5]
    assert "openmanus-rl env install babyai" in told
    listed = [item_id for split in SPLITS for item_id in BabyAI.item_ids(split)]
    assert len(set(listed)) == len(listed)
    assert len(list(BabyAI.item_ids("train"))) > 8000


def test_levels_can_be_chosen_by_name():
    ids = list(BabyAI.item_ids("train", levels=["GoToDoor", "Open"]))
    assert {int(item_id.split("_")[1]) % 40 for item_id in ids} == {LEVELS.index("GoToDoor"), LEVELS.index("Open")}
    with pytest.raises(UserError, match="Did you mean GoToDoor"):
        BabyAI(levels=["GoToDor"])


def test_the_table_of_splits_is_what_the_levels_say():
    assert tuple(make_table(3)) == table()[:3]
    assert len(table()) == SEEDS
    assert set("".join(table())) == {*LETTERS.values(), "-"}


@pytest.mark.slow
def test_the_whole_table_of_splits_is_what_the_levels_say():
    assert tuple(make_table(SEEDS)) == table()


def test_an_item_is_the_same_task_whatever_the_hash_seed():
    program = (
        "from openmanus_rl.envs.babyai.levels import LEVELS, content_of, make_level\n"
        "from openmanus_rl.envs.base import stable_hash\n"
        "print(stable_hash(''.join(content_of(make_level(name, 11)) for name in LEVELS)))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert content_of(make_level("GoToDoor", 11)) != content_of(make_level("GoToDoor", 12))


def test_a_restored_episode_goes_on_as_the_one_it_was_taken_from():
    world, _ = start(item_of("KeyInBox"))
    for _ in range(3):
        world.step(world.expert_action())
    kept = json.loads(json.dumps(world.snapshot()))
    key, rest = world.state_key(), [result.observation.text for result in play_expert(world)]
    other = BabyAI()
    other.restore(kept)
    assert other.state_key() == key
    assert [result.observation.text for result in play_expert(other)] == rest


def test_states_differ_where_a_mission_has_come_further():
    world, _ = start(item_of("GoToRedBall"))
    keys = [world.state_key()]
    for _ in range(4):
        world.step("turn left")
        keys.append(world.state_key())
    assert keys[0] == keys[4]
    assert len(set(keys)) == 4


def test_agentgyms_routes_answer_with_its_keys():
    with live_service(BabyAI) as url:
        session = call("POST", f"{url}/create").content
        assert set(session) == {"id"}
        reset = call("POST", f"{url}/reset", {**session, "data_idx": 0}).content
        assert set(reset) == {"observation", "reward", "score", "deleted", "done"}
        assert (reset["reward"], reset["score"], reset["deleted"], reset["done"]) == (0, 0, False, False)
        step = call("POST", f"{url}/step", {**session, "action": "turn left"}).content
        assert set(step) == {"observation", "reward", "score", "done"}
        seen = call("GET", f"{url}/observation?id={session['id']}").content
        assert set(seen) == {"observation", "reward", "score", "done", "deleted"}
        goal = reset["observation"].split("\n")[0]
        assert seen["observation"] == f"{goal}\n{step['observation']}"
        assert [call("POST", f"{url}/close", session).content for _ in range(2)] == [True, False]


def test_our_client_of_agentgyms_servers_plays_it_and_reads_the_score_as_rewards():
    guide, first = start(item_of("Pickup"))
    task = Task("babyai", guide.snapshot()["item_id"])

    async def play(url):
        async with AgentGymClient("babyai", [url]) as client:
            handle = await client.start(task)
            assert handle.observation.text == first
            total = 0.0
            while not handle.done:
                action = guide.expert_action()
                result, _ = await client.step(handle, action)
                assert result.observation.text == guide.step(action).observation.text
                total += result.reward
            await client.close(handle)
            return result, total

    with live_service(BabyAI) as url:
        result, total = asyncio.run(play(url))
    assert result.success
    assert total == pytest.approx(guide.score)


def test_a_recorded_conversation_gets_answers_of_the_same_shape():
    """Up to its first close: the recorded server goes on with a session after closing it."""
    path = Path(__file__).parents[2].parent / "shared" / "transcripts" / "babyai.jsonl"
    if not path.exists():
        pytest.skip(f"there is no recorded conversation at {path}")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    ours = {}
    with live_service(BabyAI) as url:
        for compared, record in enumerate(records):
            address = urlsplit(record["url"])
            body = record["request_json"] and {**record["request_json"], **ours}
            query = f"?id={ours['id']}" if address.query else ""
            answer = call(record["method"], f"{url}{address.path}{query}", body)
            assert answer.status == record["status"]
            if address.path == "/create":
                ours = {"id": answer.content["id"]}
            if address.path == "/close":
                assert compared > 8
                break
            assert {key: json_type(value) for key, value in answer.content.items()} == {
                key: json_type(value) for key, value in record["response"].items()
            }
            if address.path == "/observation":
                goal = record["response"]["observation"].split("\n")[0]
                assert answer.content["observation"].split("\n")[0] == goal


def test_the_observation_route_tells_of_the_last_step_and_done_does_not_flip_back():
    guide = BabyAI()
    with live_service(BabyAI) as url:
        session = call("POST", f"{url}/create").content["id"]
        seen = call("POST", f"{url}/reset", {"id": session, "data_idx": 0}).content["observation"]
        asked = f"{url}/observation?id={session}"
        start = {"observation": seen, "reward": 0.0, "score": 0.0, "done": False, "deleted": False}
        assert call("GET", asked).content == start
        guide.reset(Task("babyai", "babyai_0"))
        done = False
        while not done:
            action = guide.expert_action()
            guide.step(action)
            step = call("POST", f"{url}/step", {"id": session, "action": action}).content
            done = step["done"]
            told = {**step, "observation": f"{guide.goal}\n{step['observation']}", "deleted": False}
            assert call("GET", asked).content == told
    assert step["reward"] > 0


def json_type(value):
    return (
        "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else type(value).__name__
    )


def test_a_single_level_needs_no_list():
    assert list(itertools.islice(BabyAI.item_ids("train", levels="GoToRedBall"), 3)) == list(
        itertools.islice(BabyAI.item_ids("train", levels=["GoToRedBall"]), 3)
    )
