"""The examples that readers copy: what each one promises. That they train is in test_docs.py."""

import pytest
import torch
from doc_pages import ROOT

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.algorithms.credit import CreditBatch
from openmanus_rl.algorithms.registry import estimator_options, find_estimator
from openmanus_rl.envs import Task
from openmanus_rl.envs.base import SPLITS, EpisodeOver
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import score_episode

CORRIDOR = "examples/corridor_world.py:Corridor"
LEAVE_ONE_OUT = "examples/leave_one_out.py:leave_one_out"
SHORT_WAY = "examples/short_way_reward.py:compute_score"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_corridor_has_every_task_in_one_split_only():
    world = environment_class(CORRIDOR)
    by_split = [set(world.item_ids(split)) for split in SPLITS]
    assert all(by_split)
    assert sum(len(items) for items in by_split) == len(set.union(*by_split)) == 8 * 7


def test_the_corridors_expert_always_finds_the_lamp_and_chance_does_not():
    assert baseline_success(CORRIDOR, "expert", "train").rate == 1
    assert 0.2 < baseline_success(CORRIDOR, "random", "train").rate < 0.9


def test_the_corridor_plays_by_its_rules():
    corridor = environment_class(CORRIDOR)(length=4)
    assert corridor.reset(Task("corridor", "corridor_6")).text == "cell 1 lamp 2"
    refused = corridor.step("fly")
    assert refused.reward == -0.05
    assert refused.info["invalid"] == "not one of left, right"
    won = corridor.step("Right")
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)
    with pytest.raises(EpisodeOver):
        corridor.step("left")


def test_the_corridor_is_cut_after_twice_its_length():
    corridor = environment_class(CORRIDOR)(length=4)
    corridor.reset(Task("corridor", "corridor_3"))
    results = [corridor.step("left") for _ in range(8)]
    assert [result.truncated for result in results] == [False] * 7 + [True]
    assert not results[-1].success


def test_the_corridor_refuses_what_is_no_task_of_its():
    corridor = environment_class(CORRIDOR)(length=4)
    for item_id in ("corridor_5", "corridor_16", "maze_1"):
        with pytest.raises(UserError):
            corridor.reset(Task("corridor", item_id))


@pytest.mark.parametrize(("success", "turns"), [(True, 1), (True, 5), (False, 1), (False, 5)])
def test_the_reward_pays_success_and_charges_for_turns(success, turns):
    played = [Turn(i, [7], [0.0], [0], "Action: up", "up", None, None) for i in range(turns)]
    segment = Segment([7] * turns, 0, played)
    episode = Episode(Task("maze", "maze_0"), 0, 0, 0, [segment], StopReason.DONE, success)
    assert score_episode(SHORT_WAY, episode) == (pytest.approx(success - 0.02 * turns), {"turns": turns})


def test_the_estimator_compares_each_episode_with_the_mean_of_the_others():
    returns = torch.tensor([1.0, 0.0, 0.5, 3.0, 1.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    mask = torch.tensor([[True, True, False]]).repeat(5, 1)
    rewards = torch.zeros(5, 3)
    rewards[:, 1] = returns
    batch = CreditBatch(
        token_level_rewards_RT=rewards,
        response_mask_RT=mask,
        turn_index_RT=torch.where(mask, 0, -1),
        group_index_R=groups,
        episode_index_R=torch.arange(5),
        segment_index_R=torch.zeros(5, dtype=torch.long),
        bootstrap_R=torch.zeros(5, dtype=torch.bool),
    )
    answer = find_estimator(LEAVE_ONE_OUT)(batch, estimator_options(LEAVE_ONE_OUT, {"scale": 2.0}))
    expected = 2 * torch.tensor([1 - 0.25, 0 - 0.75, 0.5 - 0.5, 3.0 - 1.0, 1.0 - 3.0])
    torch.testing.assert_close(answer.advantages_RT, expected[:, None] * mask)
