"""Baselines: played in process, counted honestly, the same for the same seed."""

import pytest

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.baselines import BaselineSuccess, PlayedEpisode, baseline_success, play
from openmanus_rl.envs.maze import Maze, make_layout
from openmanus_rl.errors import UserError


def test_an_episode_reports_success_return_and_turns():
    episode = play(Maze(), Task("maze", "maze_3"), lambda world: world.expert_action())
    assert episode == PlayedEpisode(True, 1.0, make_layout(3, 4, 0.6).shortest)


def test_a_lost_episode_sums_its_penalties():
    episode = play(Maze(max_steps=4), Task("maze", "maze_3"), lambda world: "jump")
    assert not episode.success
    assert episode.turns == 4
    assert episode.episode_return == pytest.approx(-0.2)


def test_the_same_seed_gives_the_same_count_and_another_seed_other_play():
    counts = [baseline_success("maze", "random", "test", 60, seed=seed) for seed in (1, 1, 2, 3, 4)]
    assert counts[0] == counts[1]
    assert len({count.successes for count in counts}) > 1


def test_a_tasks_outcome_does_not_depend_on_how_many_are_played():
    few = baseline_success("maze", "random", "train", 20)
    more = baseline_success("maze", "random", "train", 21)
    assert more.successes - few.successes in (0, 1)


def test_the_expert_is_perfect_and_options_reach_the_world():
    assert baseline_success("maze", "expert", "validation", 40, options={"size": 3}) == BaselineSuccess(40, 40)


def test_a_small_split_is_played_once_and_counted_as_small():
    assert baseline_success("wordle", "expert", "test", 512, options={"words": 64}) == BaselineSuccess(5, 5)


def test_an_empty_split_is_an_error_not_a_rate():
    with pytest.raises(UserError, match="no test tasks"):
        baseline_success("wordle", "random", "test", 10, options={"words": 2})


def test_an_unknown_policy_is_refused():
    with pytest.raises(UserError, match="greedy"):
        baseline_success("maze", "greedy", "test", 1)
