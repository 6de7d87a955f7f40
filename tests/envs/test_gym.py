"""The adapter for Gymnasium: registered environments, classes, wrappers, named actions, text."""

from itertools import islice
from pathlib import Path

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.check.run import FAST_CHECKS, check_world
from openmanus_rl.envs.gym import GymWorld
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.errors import UserError

TOYS = Path(__file__).with_name("gym_toys.py")
LAKE = {"id": f"{TOYS}:Lake", "actions": ["left", "down", "right", "up"], "content": "observation", "max_steps": 20}


def lake(**options):
    return make_environment("gym", **{**LAKE, **options})


def walk_to_goal(text):
    """The way from S to G that a reader of the picture would take, around nothing."""
    rows = text.split("\n")
    places = {mark: (row, line.index(mark)) for row, line in enumerate(rows) for mark in "SG" if mark in line}
    down, right = (places["G"][axis] - places["S"][axis] for axis in (0, 1))
    return ["down" if down > 0 else "up"] * abs(down) + ["right" if right > 0 else "left"] * abs(right)


def test_an_environment_of_text_is_played_by_the_names_of_its_actions():
    world = lake()
    for number in range(20):
        text = world.reset(Task("gym", f"gym_{number}")).text
        results = []
        for action in walk_to_goal(text):
            results.append(world.step(action.upper()))
            if results[-1].done:
                break
        if results[-1].success:
            break
    assert (results[-1].reward, results[-1].terminated) == (1.0, True)
    with pytest.raises(EpisodeOver):
        world.step("up")
    assert "Actions: left, down, right, up." in world.instructions()


def test_the_same_seed_is_the_same_task_and_options_reach_the_environment():
    one, other = lake(make={"size": 6}), lake(make={"size": 6})
    seen = [world.reset(Task("gym", "gym_7")).text for world in (one, other, one)]
    assert len(set(seen)) == 1
    assert len(seen[0].split("\n")) == 6


def test_what_is_no_action_is_told_and_costs_a_turn_only():
    world = lake(max_steps=2)
    first = world.reset(Task("gym", "gym_1")).text
    refused = world.step("fly")
    assert refused.info["invalid"] == "not one of left, down, right, up"
    assert refused.observation.text.endswith(first)
    assert world.step("fly").truncated


def test_a_registered_environment_is_made_by_its_id_and_drawn_in_text():
    world = make_environment(
        "gym",
        id="FrozenLake-v1",
        make={"is_slippery": False, "render_mode": "ansi"},
        actions=["left", "down", "right", "up"],
        observation="render",
    )
    assert "FFFG"[-1] in world.reset(Task("gym", "gym_3")).text
    for action in ("down", "down", "right", "right", "down", "right"):
        result = world.step(action)
    assert (result.success, result.reward) == (True, 1.0)
    assert "SFFF" in world.render()


def test_numbers_are_the_actions_where_none_are_named():
    world = make_environment("gym", id="FrozenLake-v1")
    assert world.grammar.describe() == "0, 1, 2, 3"
    assert world.reset(Task("gym", "gym_0")).text == "0"
    assert "invalid" not in world.step("1").info
    assert world.random_action(0.99) == "3"


def test_a_space_of_texts_takes_the_texts_that_it_contains():
    world = make_environment("gym", id=f"{TOYS}:Guess")
    assert world.reset(Task("gym", "gym_5")).text == "guess"
    assert "invalid" in world.step("seven").info
    low, high, result = 0, 7, None
    while result is None or not result.done:
        result = world.step(str((low + high) // 2))
        if result.observation.text == "higher":
            low = (low + high) // 2 + 1
        else:
            high = (low + high) // 2 - 1
    assert result.success
    assert world.random_action(0.3).isdigit()


def test_a_wrapper_and_a_function_make_words_of_vectors():
    with pytest.raises(UserError, match="cannot be said in words"):
        make_environment("gym", id=f"{TOYS}:Arm")
    world = make_environment(
        "gym", id=f"{TOYS}:Arm", wrapper=f"{TOYS}:TwoWays", actions=["back", "forth"], observation=f"{TOYS}:in_words"
    )
    assert world.reset(Task("gym", "gym_0")).text == "the hand is at +0"
    assert world.step("back").observation.text == "the hand is at -1"
    assert world.step("forth").success


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no environment is chosen"),
        ({"id": "NoSuchLake-v1"}, "NoSuchLake"),
        ({"id": "FrozenLake-v1", "actions": ["a", "b"]}, "4 actions"),
        ({"id": "FrozenLake-v1", "observation": "picture"}, "observation is 'picture'"),
        ({"id": "FrozenLake-v1", "score_range": [1, 0]}, "score_range"),
        ({"id": "FrozenLake-v1", "content": "all"}, "Choose seed or observation"),
        ({"id": f"{TOYS}:Guess", "actions": ["a"]}, "takes any text"),
    ],
)
def test_a_wrong_option_is_a_users_mistake(options, told):
    with pytest.raises(UserError) as caught:
        make_environment("gym", **options)
    assert told in str(caught.value)


def test_splits_are_disjoint_by_seed_or_by_what_is_seen_first():
    by_seed = {split: list(islice(GymWorld.item_ids(split, id="FrozenLake-v1"), 50)) for split in SPLITS}
    assert len({item_id for ids in by_seed.values() for item_id in ids}) == 150
    world = lake()
    seen = [
        world.reset(Task("gym", item_id)).text
        for split in SPLITS
        for item_id in islice(GymWorld.item_ids(split, **LAKE), 40)
    ]
    assert len(set(seen)) == len(seen) == 120


def test_first_observations_that_run_out_end_the_split():
    ids = [
        item_id for split in SPLITS for item_id in GymWorld.item_ids(split, id=f"{TOYS}:Guess", content="observation")
    ]
    assert ids == ["gym_0"]


def test_a_server_tells_the_grammar_and_the_range_of_this_environment():
    with live_service(GymWorld, {**LAKE, "score_range": [-1, 1]}) as url:
        told = call("GET", f"{url}/v1/env").content
    assert told["forms"] == ["left", "down", "right", "up"]
    assert told["score_range"] == [-1.0, 1.0]


def test_a_handmade_environment_passes_every_check():
    results = list(check_world("gym", LAKE, checks=FAST_CHECKS, seconds=60.0))
    assert [result for result in results if result.status == "failed"] == []
