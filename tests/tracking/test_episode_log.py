import json

import numpy as np
import pytest

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task
from openmanus_rl.tracking.episodes import EpisodeLog, read_episodes


def turn(start, token_ids, **details):
    defaults = {"text": "Action: up", "action": "up", "invalid_reason": None, "state_key": "0,0"}
    return Turn(
        start=start,
        token_ids=token_ids,
        log_probs=[-0.1 * token for token in token_ids],
        versions=[7] * len(token_ids),
        **{**defaults, **details},
    )


def two_segment_episode():
    first = Segment(
        ids=[1, 2, 3, 4, 5, 6, 7],
        prompt_length=2,
        turns=[
            turn(2, [3, 4], reward=-0.1, observation="wall — «übel»\nline", generate_seconds=0.25, env_seconds=0.001),
            turn(5, [6, 7], action=None, invalid_reason="no action", text="hm", reward=-0.05),
        ],
    )
    second = Segment(ids=[1, 9, 8], prompt_length=2, turns=[turn(2, [8], reward=1.0, state_key=None)])
    return Episode(
        task=Task("maze", "maze-4-17", seed=3, prompt="Walk.", ground_truth="up", extra={"index": 5}),
        group=2,
        sample=1,
        seed=99,
        segments=[first, second],
        stop_reason=StopReason.DONE,
        success=True,
        scores={"agentgym": 0.85},
    )


def test_episodes_come_back_exactly_as_they_were(tmp_path):
    failed = Episode(task=Task("maze", "maze-4-18"), group=3, sample=0, seed=1, failure="the server died")
    episodes = [two_segment_episode(), failed]
    path = EpisodeLog(tmp_path).write("validation", 50, episodes)
    assert path.name == "validation_step_000050.jsonl"
    assert read_episodes(path) == episodes


def test_every_token_has_a_mask_a_log_prob_a_version_and_a_reward(tmp_path):
    path = EpisodeLog(tmp_path).write("train", 3, [two_segment_episode()])
    record = json.loads(path.read_text())
    first = record["segments"][0]
    assert first["mask"] == [0, 0, 1, 1, 0, 1, 1]
    assert first["log_probs"] == [None, None, *turn(0, [3, 4]).log_probs, None, *turn(0, [6, 7]).log_probs]
    assert first["versions"] == [None, None, 7, 7, None, 7, 7]
    assert first["rewards"] == [0, 0, 0, -0.1, 0, 0, -0.05]
    assert record["return"] == pytest.approx(0.85)


def test_given_rewards_are_written_in_place_of_the_worlds(tmp_path):
    given = [[[0.0] * 6 + [0.5], [0.0, 0.0, 2.0]]]
    path = EpisodeLog(tmp_path).write("train", 3, [two_segment_episode()], rewards=given)
    assert [segment["rewards"] for segment in json.loads(path.read_text())["segments"]] == given[0]


def test_tokens_that_are_not_where_their_turn_says_are_refused(tmp_path):
    episode = two_segment_episode()
    episode.segments[0].turns[0].start = 1
    with pytest.raises(ValueError, match="the turn at 1"):
        EpisodeLog(tmp_path).write("train", 3, [episode])
    assert list(tmp_path.iterdir()) == []


def test_values_out_of_parquet_can_be_written(tmp_path):
    task = Task("maze", "a", extra={"index": np.int64(4), "walls": np.array([1, 2])})
    path = EpisodeLog(tmp_path).write("train", 1, [Episode(task=task, group=0, sample=0, seed=0)])
    assert read_episodes(path)[0].task.extra == {"index": 4, "walls": [1, 2]}
