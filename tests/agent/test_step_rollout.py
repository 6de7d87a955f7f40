"""What a training step plays beside its groups: refills for groups that teach nothing, and greedy episodes."""

from collections import Counter as Counted

import pytest
from handmade import one_segment_episode
from playing import setting, task

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.config.schema import AlgorithmConfig, RunConfig
from openmanus_rl.data.sampler import TaskSampler
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.rollout import learnable_groups, play_step

TASKS = [task("up", number) for number in range(-6, 3)]


def played(group: int, score: float, stop_reason: StopReason = StopReason.DONE):
    episode = one_segment_episode(stop_reason)
    episode.group, episode.scores = group, {"score": score}
    return episode


def step(models, rollout: dict, estimator: str = "grpo", tasks=TASKS):
    rewards = RewardManager(AlgorithmConfig(), 4096)
    config = RunConfig(
        rollout={"tasks_per_step": 2, "group_size": 2, "temperature": 0.0, **rollout},
        algorithm={"estimator": estimator},
    )
    with setting(models / "obedient", rewards=rewards, judge=rewards.judge) as here:
        sampler = TaskSampler(len(tasks), seed=0)
        return *play_step(here.agent, sampler, tasks, config, 1), sampler.position


def test_a_group_can_be_learnt_from_if_its_played_episodes_differ():
    group_of_equals = [played(0, 0.1), played(0, 0.1)]
    differing = [played(1, 0.1), played(1, 0.2)]
    one_failed = [played(2, 0.1), played(2, 0.9, StopReason.ENV_FAILURE)]
    equal_but_for_rounding = [played(3, 1.3 - 0.1 - 0.1 - 0.1), played(3, 1.0), played(3, 1.0 + 1e-7)]
    assert learnable_groups([*group_of_equals, *differing, *one_failed, *equal_but_for_rounding]) == 1
    assert learnable_groups([]) == 0


def test_groups_of_equals_are_refilled_with_other_tasks_until_the_refills_are_spent(models):
    rows, episodes, metrics, drawn = step(models, {"refills": 2})
    assert drawn == 3 * 2
    assert Counted(episode.group for episode in episodes) == dict.fromkeys(range(6), 2)
    assert len({episode.task.item_id for episode in episodes}) == 6
    assert sorted(rows.batch["group_index"].tolist()) == sorted(episode.group for episode in episodes)
    assert metrics == {"groups/refilled": 2.0}


def test_a_task_that_comes_again_in_a_refill_is_a_group_of_its_own_from_other_seeds(models):
    _, episodes, _, _ = step(models, {"refills": 1}, tasks=TASKS[:2])
    assert Counted(episode.group for episode in episodes) == dict.fromkeys(range(4), 2)
    assert len({episode.seed for episode in episodes}) == len(episodes) == 8


def test_without_refills_nothing_more_is_drawn(models):
    _, episodes, metrics, drawn = step(models, {})
    assert (len(episodes), metrics, drawn) == (4, {}, 2)


def test_an_estimator_that_asks_for_it_gets_the_greedy_return_of_each_rows_task(models):
    rows, episodes, metrics, _ = step(
        models, {"group_size": 1}, estimator="remax", tasks=[task("up", 0), task("babble", 1)]
    )
    by_group = {episode.group: episode.episode_return for episode in episodes}
    expected = [by_group[group] for group in rows.batch["group_index"].tolist()]
    assert rows.batch["greedy_return"].tolist() == pytest.approx(expected)  # all episodes here are greedy
    assert len(episodes) == 2, "greedy episodes are not trained on"
    assert set(metrics) == {"greedy/return", "greedy/success"}


def test_rows_of_a_task_whose_greedy_episode_failed_are_left_out(models, monkeypatch):
    from openmanus_rl.agent.openmanus import OpenManusAgent

    whole = OpenManusAgent.play
    calls = []

    def first_greedy_fails(self, requests, on_end=None, enough=None):
        found = whole(self, requests, on_end, enough)
        calls.append(found)
        if len(calls) == 2:
            found[0].stop_reason = StopReason.ENV_FAILURE
        return found

    monkeypatch.setattr(OpenManusAgent, "play", first_greedy_fails)
    rows, _, _, _ = step(models, {}, estimator="remax")
    assert rows.batch["group_index"].tolist() == [1, 1]
