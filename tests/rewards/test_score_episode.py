import gc
from dataclasses import replace

import numpy as np
import pytest
import torch

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import score_episode


def episode(stop_reason: StopReason = StopReason.DONE) -> Episode:
    turns = [
        Turn(2, [5, 6], [0.0] * 2, [0] * 2, "Action: up", "up", None, None, reward=-0.1),
        Turn(6, [7], [0.0], [0], "Action: Paris", "Paris", None, None, reward=1.0),
    ]
    task = Task("quiz", "quiz-17", ground_truth="paris", extra={"depth": 3})
    return Episode(task, 0, 0, 0, [Segment(list(range(7)), 2, turns)], stop_reason, success=True)


def giving(value):
    return lambda solution_str, ground_truth, **kwargs: value


def test_agentgym_is_the_sum_of_the_turns_rewards():
    assert score_episode("agentgym", episode()) == (pytest.approx(0.9), {})


def test_exact_match_compares_the_last_action_with_the_tasks_ground_truth():
    assert score_episode("exact_match", episode()) == (1.0, {})


def test_a_reward_sees_what_was_said_last_the_truth_and_the_whole_episode():
    seen = {}

    def look(solution_str, ground_truth, **kwargs):
        seen.update(kwargs, solution_str=solution_str, ground_truth=ground_truth)
        return 0.0

    played = episode()
    score_episode(look, played)
    assert seen.pop("episode") is played
    assert seen == {
        "solution_str": "Action: Paris",
        "ground_truth": "paris",
        "action": "Paris",
        "episode_return": pytest.approx(0.9),
        "success": True,
        "data_source": "quiz",
        "extra_info": {"depth": 3},
    }


@pytest.mark.parametrize(
    "value", [0.5, torch.tensor(0.5), torch.tensor([0.5]), np.float32(0.5), np.array(0.5), {"score": np.array(0.5)}]
)
def test_a_score_may_be_a_number_a_dict_or_a_tensor(value):
    assert score_episode(giving(value), episode()) == (0.5, {})


def test_the_other_keys_of_a_dict_become_metrics():
    value = {"score": 1, "format": torch.tensor(0.25), "hits": np.bool_(True)}
    assert score_episode(giving(value), episode()) == (1.0, {"format": 0.25, "hits": 1.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.tensor(-torch.inf), {"score": 1.0, "f": np.nan}])
def test_a_score_that_is_not_finite_is_refused_with_function_and_task(value):
    with pytest.raises(UserError, match=r"giving.*quiz-17.* gave (nan|inf|-inf)"):
        score_episode(giving(value), episode())


@pytest.mark.parametrize("value", [None, "1.0", [1.0], torch.zeros(2), {"score": "high"}])
def test_a_score_of_the_wrong_type_is_refused_with_function_and_task(value):
    with pytest.raises(UserError, match=r"giving.*quiz-17.*not a number"):
        score_episode(giving(value), episode())


def test_a_dict_without_a_score_is_refused():
    with pytest.raises(UserError, match=r"quiz-17 gave a dict without 'score': \['reward'\]"):
        score_episode(giving({"reward": 1.0}), episode())


def test_a_reward_that_raises_stops_with_the_task_the_cause_and_the_line():
    def broken(solution_str, ground_truth, **kwargs):
        return kwargs["no_such_key"]

    with pytest.raises(UserError, match=r"broken on task quiz-17 raised KeyError: 'no_such_key'") as caught:
        score_episode(broken, episode())
    assert "test_score_episode.py:" in caught.value.hint
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.filterwarnings("error")
def test_a_reward_that_raises_beside_an_asynchronous_one_leaves_nothing_waiting(tmp_path):
    path = tmp_path / "own_mixed.py"
    path.write_text(
        "async def slow(s, g, **kwargs):\n    return 1.0\n\n\ndef broken(s, g, **kwargs):\n    return {}['x']\n"
    )
    with pytest.raises(UserError, match="broken on task quiz-17 raised KeyError"):
        score_episode(f"{path}:slow + {path}:broken", episode())
    gc.collect()  # a coroutine that was never awaited would be told here, and be an error


def test_a_rewards_own_error_keeps_its_hint_and_gets_the_task():
    with pytest.raises(UserError, match=r"exact_match on task quiz-17: .*no ground truth") as caught:
        score_episode("exact_match", replace(episode(), task=Task("quiz", "quiz-17")))
    assert "reward_model.ground_truth" in caught.value.hint


def test_slip_6_a_failed_episode_has_no_score():
    with pytest.raises(ValueError, match="quiz-17 ended by env_timeout"):
        score_episode("agentgym", episode(StopReason.ENV_TIMEOUT))


def test_an_episode_without_a_turn_said_nothing():
    silent = Episode(Task("quiz", "quiz-1", ground_truth="x"), 0, 0, 0, [Segment([1], 1)], StopReason.CONTEXT_FULL)
    assert score_episode("exact_match", silent) == (0.0, {})
