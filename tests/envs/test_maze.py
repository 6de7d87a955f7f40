"""The maze: its rules, its tasks, and what can be seen of it."""

import json
import os
import re
import subprocess
import sys
from itertools import islice

import pytest

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success, play
from openmanus_rl.envs.items import seeded
from openmanus_rl.envs.maze import DIRECTIONS, Maze, MazeLayout, make_layout
from openmanus_rl.errors import UserError

MAZE_0 = "4 down=1101100110110000 right=1110111011001000 start=(0, 3) goal=(0, 2)"
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def started(number: int, **options: object) -> Maze:
    maze = Maze(**options)
    maze.reset(Task("maze", f"maze_{number}"))
    return maze


def first_ids(split: str, count: int, **options: object) -> list[str]:
    return list(islice(Maze.item_ids(split, **options), count))


def layout_of(item_id: str) -> MazeLayout:
    return make_layout(int(item_id.removeprefix("maze_")), 4, 0.6)


def test_the_observation_has_a_fixed_place_for_everything():
    side = "(open|seen|wall)"
    shape = re.compile(rf"up:{side} down:{side} left:{side} right:{side} goal x[+-]\d y[+-]\d")
    for number in range(50):
        observation = Maze().reset(Task("maze", f"maze_{number}"))
        assert shape.fullmatch(observation.text)
        assert "seen" not in observation.text


def test_the_goal_offset_counts_right_and_up():
    layout = make_layout(3, 4, 0.6)
    right = layout.goal[1] - layout.start[1]
    up = layout.start[0] - layout.goal[0]
    assert Maze().reset(Task("maze", "maze_3")).text.endswith(f"goal x{right:+d} y{up:+d}")


def test_a_step_moves_the_goal_offset_and_marks_the_way_back_as_seen():
    maze = Maze()
    before = maze.reset(Task("maze", "maze_3")).text
    direction = next(d for d in DIRECTIONS if f"{d}:open" in before)
    after = maze.step(direction).observation.text
    assert f"{OPPOSITE[direction]}:seen" in after
    offsets = [tuple(map(int, re.findall(r"[+-]\d", text))) for text in (before, after)]
    down, right = DIRECTIONS[direction]
    assert offsets[1] == (offsets[0][0] - right, offsets[0][1] + down)


def test_reaching_the_goal_pays_one_and_ends_the_episode():
    maze = started(5)
    while not (result := maze.step(maze.expert_action())).done:
        assert result.reward == 0
    assert (result.reward, result.terminated, result.truncated, result.success) == (1.0, True, False, True)
    assert result.observation.text.endswith("goal x+0 y+0")


def test_a_wall_costs_and_leaves_the_player_in_place():
    maze = Maze()
    before = maze.reset(Task("maze", "maze_1")).text
    direction = next(d for d in DIRECTIONS if f"{d}:wall" in before)
    result = maze.step(direction)
    assert (result.reward, result.observation.text, result.done) == (-0.1, before, False)


def test_an_unknown_action_costs_less_than_a_wall_and_says_why():
    maze = Maze()
    before = maze.reset(Task("maze", "maze_1")).text
    result = maze.step("fly up")
    assert (result.reward, result.observation.text) == (-0.05, before)
    assert "up, down, left, right" in result.info["invalid"]


def test_the_episode_is_cut_after_max_steps_and_no_step_follows():
    maze = started(1, max_steps=3)
    results = [maze.step("jump") for _ in range(3)]
    assert [result.truncated for result in results] == [False, False, True]
    assert not results[-1].terminated
    with pytest.raises(EpisodeOver):
        maze.step("up")


def test_nothing_can_be_asked_before_the_first_reset():
    with pytest.raises(EpisodeOver, match="reset"):
        Maze().step("up")


def test_what_is_shown_is_what_is_parsed():
    assert "up, down, left, right" in Maze().instructions()
    for form in Maze.grammar.forms:
        for spelling in (form.shown, f"move {form.shown}", form.shown.upper()):
            match = Maze.grammar.parse(spelling)
            assert match is not None
            assert match["direction"].lower() == form.shown
    assert Maze.grammar.parse("go up") is None


def test_agentgym_wording_names_absolute_positions_and_walls():
    layout = make_layout(7, 4, 0.6)
    text = Maze(wording="agentgym").reset(Task("maze", "maze_7")).text
    assert f"goal is at position {layout.goal[0]}, {layout.goal[1]}." in text
    assert f"current position is at position {layout.start[0]}, {layout.start[1]}." in text
    assert ("above you" in text) == (layout.neighbour(layout.start, "up") is None)


def test_every_maze_can_be_solved_in_time_and_a_perfect_one_has_no_circle():
    for number in range(300):
        layout = make_layout(number, 4, 0.6)
        assert len(layout.distances) == 16
        assert 1 <= layout.shortest <= 16
        assert len(make_layout(number, 4, 0.0).passages) == 2 * 15
        assert len(make_layout(number, 4, 1.0).passages) == 2 * 24


def test_only_mazes_that_fit_the_turns_are_offered():
    for item_id in first_ids("train", 100, max_steps=2):
        assert layout_of(item_id).shortest <= 2


def test_splits_share_no_maze_and_repeat_none():
    contents = [layout_of(item_id).content for split in SPLITS for item_id in first_ids(split, 300)]
    assert len(set(contents)) == len(contents) == 900


def test_ids_come_in_a_fixed_order():
    assert first_ids("test", 5) == ["maze_5", "maze_8", "maze_26", "maze_49", "maze_50"]


def test_a_tiny_size_ends_when_all_its_mazes_are_named():
    counts = [len(first_ids(split, 100, size=2)) for split in SPLITS]
    assert sum(counts) == 60  # 4 spanning trees and the open square, times 12 starts and goals


def test_an_item_is_the_same_maze_in_every_process():
    code = "from openmanus_rl.envs.maze import make_layout; print([make_layout(n, 4, 0.6).content for n in range(20)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1234")
    }
    assert outputs == {f"{[make_layout(n, 4, 0.6).content for n in range(20)]}\n"}


def test_the_first_maze_is_the_same_for_ever():
    assert make_layout(0, 4, 0.6).content == MAZE_0


@pytest.mark.parametrize("item_id", ["maze", "maze_", "maze_-1", "maze_01", "wordle_3", "maze_1 ", "maze_x"])
def test_a_wrong_item_id_is_refused_with_the_form_expected(item_id):
    with pytest.raises(UserError, match="maze_<n>"):
        Maze().reset(Task("maze", item_id))


@pytest.mark.parametrize(
    ("option", "value"), [("size", 1), ("open_walls", 1.5), ("max_steps", 0), ("wording", "agentgim")]
)
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(UserError, match=option):
        Maze(**{option: value})
    with pytest.raises(UserError, match=option):
        next(Maze.item_ids("train", **{option: value}))


def test_two_mazes_never_see_each_other():
    first, second = started(1, max_steps=50), started(2, max_steps=50)
    alone = started(1, max_steps=50)
    for turn in range(12):
        action = first.random_action(turn / 12)
        second.step("jump")
        assert first.step(action) == alone.step(action)


def test_a_restored_snapshot_goes_on_exactly_as_before():
    chance = seeded("maze snapshot")
    for number in range(20):
        maze = started(number)
        for _ in range(3):
            if maze.snapshot()["over"]:
                break
            maze.step(maze.random_action(chance.random()))
        saved = json.loads(json.dumps(maze.snapshot()))
        other = Maze()
        other.restore(saved)
        assert other.state_key() == maze.state_key()
        assert other.snapshot() == saved
        while not maze.snapshot()["over"]:
            action = maze.random_action(chance.random())
            assert other.step(action) == maze.step(action)


def test_equal_state_keys_have_equal_futures():
    chance = seeded("maze state keys")
    seen: dict[str, list[tuple[str, float]]] = {}
    for _ in range(200):
        maze = started(int(chance.random() * 3), max_steps=1000)
        for _ in range(4):
            if maze.snapshot()["over"]:
                break
            key, saved = maze.state_key(), maze.snapshot()
            future = []
            for direction in DIRECTIONS:
                result = maze.step(direction)
                future.append((result.observation.text, result.reward))
                maze.restore(saved)
            assert seen.setdefault(key, future) == future
            maze.step(maze.random_action(chance.random()))
    assert len(seen) > 30


def test_the_picture_shows_player_goal_and_walls():
    maze = started(0)
    picture = maze.render()
    assert picture.count("@") == picture.count("G") == 1
    assert len(picture.splitlines()) == 9


def test_the_expert_always_arrives_on_a_shortest_way():
    for item_id in first_ids("train", 300):
        maze = Maze()
        maze.reset(Task("maze", item_id))
        turns = 1
        while not (result := maze.step(maze.expert_action())).done:
            turns += 1
        assert result.success
        assert turns == layout_of(item_id).shortest


def test_chance_alone_solves_some_mazes_but_not_most():
    random = baseline_success("maze", "random", "test", 512)
    assert random.episodes == 512
    assert 0.25 < random.rate < 0.5


def test_a_partial_observation_tells_the_walls_and_not_where_the_goal_is():
    slots = Maze(observation="partial").reset(Task("maze", "maze_7")).text
    assert Maze().reset(Task("maze", "maze_7")).text.startswith(f"{slots} goal x")
    sentences = Maze(observation="partial", wording="agentgym").reset(Task("maze", "maze_7")).text
    assert sentences.startswith("There ")
    assert "position" not in sentences


def test_agentgyms_own_maze_has_its_walls_its_goal_and_its_25_starts():
    maze = Maze(layout="double_t", wording="agentgym", max_steps=50, penalties=False)
    first = maze.reset(Task("maze", "maze_0")).text
    assert first == (
        "The goal is at position 8, 6. Your current position is at position 1, 1. "
        "There are walls to your left, above you, below you."
    )
    bump = maze.step("move up")
    assert (bump.reward, bump.observation.text) == (0.0, first)
    assert maze.step("nonsense").reward == 0.0
    assert maze.reset(Task("maze", "maze_5")).text.split(". ")[1] == "Your current position is at position 1, 7"
    ids = [item_id for split in SPLITS for item_id in Maze.item_ids(split, layout="double_t", max_steps=50)]
    assert sorted(ids) == sorted(f"maze_{number}" for number in range(25))
    for item_id in ids:
        assert play(maze, Task("maze", item_id), lambda world: world.expert_action()).success
    with pytest.raises(UserError, match="maze_0 to maze_24"):
        maze.reset(Task("maze", "maze_25"))


@pytest.mark.parametrize("options", [{"layout": "t"}, {"observation": "none"}])
def test_an_unknown_layout_or_observation_is_a_users_mistake(options):
    with pytest.raises(UserError, match="there is no"):
        Maze(**options)
