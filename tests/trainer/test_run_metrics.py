"""What a step's metrics say, against episodes and rows that are counted by hand."""

import pytest
import torch

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task
from openmanus_rl.protocol import DataProto
from openmanus_rl.tracking.stats import wilson
from openmanus_rl.trainer.metrics import batch_metrics, episode_metrics


def played(
    success: bool = True,
    env: str = "maze",
    difficulty: str | int | None = None,
    turn_tokens: tuple[int, ...] = (2,),
    invalid: int = 0,
    stop: StopReason = StopReason.DONE,
    prompt: int = 3,
    **scores: float,
) -> Episode:
    segment = Segment(ids=[1] * prompt, prompt_length=prompt)
    for number, tokens in enumerate(turn_tokens):
        reason = "no action" if number < invalid else None
        turn = Turn(len(segment.ids), [5] * tokens, [0.0] * tokens, [0] * tokens, "", None, reason, None, reward=0.5)
        segment.turns.append(turn)
        segment.ids.extend([5] * tokens)
    extra = {} if difficulty is None else {"difficulty": difficulty}
    return Episode(Task(env, "x_1", extra=extra), 0, 0, 0, [segment], stop, success, scores=dict(scores))


def test_success_has_an_interval_for_all_for_each_environment_and_for_each_difficulty():
    easy = [played(True, difficulty="steps_1_to_2") for _ in range(4)]
    hard = [played(False, difficulty="steps_9_to_16") for _ in range(3)] + [played(True, difficulty="steps_9_to_16")]
    other = [played(False, env="examples/corridor_world.py:Corridor") for _ in range(2)]
    metrics = episode_metrics([*easy, *hard, *other], "val/")
    expected = {
        "val/success": wilson(5, 10),
        "val/success/maze": wilson(5, 8),
        "val/success/maze/steps_1_to_2": wilson(4, 4),
        "val/success/maze/steps_9_to_16": wilson(1, 4),
        "val/success/examples-corridor_world.py-Corridor": wilson(0, 2),
    }
    told = {name for name in metrics if name.startswith("val/success")}
    assert told == {f"{name}/{part}" for name in expected for part in ("rate", "low", "high", "n")}
    for name, interval in expected.items():
        assert {part: metrics[f"{name}/{part}"] for part in ("rate", "low", "high", "n")} == interval.to_dict()


def test_a_difficulty_of_0_is_one():
    metrics = episode_metrics([played(True, difficulty=0), played(False, difficulty=1), played(True)])
    assert {name for name in metrics if name.endswith("/n")} == {
        "success/n",
        "success/maze/n",
        "success/maze/0/n",
        "success/maze/1/n",
    }


def test_lengths_turns_and_scores_are_told_with_their_spread():
    episodes = [
        played(turn_tokens=(2, 3), invalid=1, prompt=4, score=1.0, format=0.5),
        played(turn_tokens=(1,), prompt=2, stop=StopReason.CONTEXT_FULL, score=-1.0, format=1.0),
    ]
    metrics = episode_metrics(episodes)
    expected = {
        "num_turns/mean": 1.5,
        "num_turns/max": 2,
        "num_turns/min": 1,
        "response_length/mean": 3,
        "response_length/max": 5,
        "response_length/min": 1,
        "response_length/clip_ratio": 0.5,
        "prompt_length/mean": 3,
        "prompt_length/max": 4,
        "prompt_length/min": 2,
        "critic/score/mean": 0,
        "critic/score/max": 1,
        "critic/score/min": -1,
        "critic/score/format/mean": 0.75,
        "episode/count": 2,
        "episode/return/mean": 0.75,
        "episode/invalid_actions": 1 / 3,
        "episode/stop/done": 0.5,
        "episode/stop/context_full": 0.5,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


def test_a_failed_episode_is_counted_by_its_cause_and_nowhere_else():
    failed = played(False, turn_tokens=(9, 9, 9), stop=StopReason.ENV_TIMEOUT)
    failed.failed_tries = [StopReason.ENV_FAILURE] * 2
    metrics = episode_metrics([played(turn_tokens=(2,)), failed])
    assert metrics["episode/stop/env_timeout"] == 0.5
    assert metrics["episode/retries/env_failure"] == 2
    assert (metrics["success/rate"], metrics["success/n"], metrics["episode/count"]) == (1, 1, 1)
    assert metrics["response_length/max"] == 2


def test_an_episode_of_two_rows_has_one_reward_and_masked_tokens_count_nowhere():
    mask = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 0, 0]]).bool()
    columns = {
        "episode_index": torch.tensor([7, 7, 9]),
        "token_level_rewards": torch.tensor([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 0.0]]),
        "response_mask": mask,
        "advantages": torch.tensor([[1.0, 99.0, 2.0], [3.0, 4.0, 99.0], [-5.0, 99.0, 99.0]]),
    }
    metrics = batch_metrics(DataProto.from_dict(columns))
    assert metrics == pytest.approx(
        {
            "critic/rewards/mean": 1.0,
            "critic/rewards/max": 3.0,
            "critic/rewards/min": -1.0,
            "critic/advantages/mean": 1.0,
            "critic/advantages/max": 4.0,
            "critic/advantages/min": -5.0,
        }
    )
