"""Episodes on disk are the episodes that were played."""

import json

import numpy as np
import pytest
from handmade import one_segment_episode, turn, two_segment_episode

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.records import RecordDetails, TokenCredit, read_episodes, write_episodes
from openmanus_rl.envs.base import Task


def record_of(path, episode, **details):
    write_episodes(path, [episode], RecordDetails(**details))
    (line,) = path.read_text(encoding="utf-8").splitlines()
    return json.loads(line)


def test_episodes_come_back_exactly_as_they_were(tmp_path):
    failed = Episode(task=Task("maze", "maze-4-18"), group=3, sample=0, seed=1, failure="the server died")
    half_played = one_segment_episode(StopReason.ABORTED)
    episodes = [two_segment_episode(), failed, one_segment_episode(), half_played]
    write_episodes(tmp_path / "new" / "episodes.jsonl", episodes)
    assert read_episodes(tmp_path / "new" / "episodes.jsonl") == episodes


def test_every_token_has_a_mask_a_log_prob_a_version_and_a_reward(tmp_path):
    record = record_of(tmp_path / "a.jsonl", two_segment_episode())
    first = record["segments"][0]
    assert first["ids"] == [1, 2, 3, 4, 5, 6, 7]
    assert first["mask"] == [0, 0, 1, 1, 0, 1, 1]
    assert first["log_probs"] == [None, None, *turn(0, [3, 4]).log_probs, None, *turn(0, [6, 7]).log_probs]
    assert first["versions"] == [None, None, 7, 7, None, 7, 7]
    assert first["rewards"] == [0, 0, 0, -0.1, 0, 0, -0.05]
    assert record["return"] == pytest.approx(0.85)


def test_a_record_says_what_was_said_done_and_seen(tmp_path):
    record = record_of(tmp_path / "a.jsonl", two_segment_episode())
    assert (record["env"], record["item_id"], record["stop_reason"], record["success"]) == (
        "maze",
        "maze-4-17",
        "done",
        True,
    )
    assert [(said["segment"], said["text"], said["action"]) for said in record["turns"]] == [
        (0, "Action: up", "up"),
        (0, "hm", None),
        (1, "Action: up", "up"),
    ]
    assert record["turns"][0]["observation"] == "wall — «übel»\nline"


def test_halves_of_characters_can_be_written_and_come_back(tmp_path):
    episode = one_segment_episode()
    episode.turns[0].observation = "half \ud83d of a rocket"
    write_episodes(tmp_path / "a.jsonl", [episode])
    assert read_episodes(tmp_path / "a.jsonl") == [episode]


def test_given_rewards_are_written_in_place_of_the_worlds(tmp_path):
    record = record_of(tmp_path / "a.jsonl", two_segment_episode(), rewards=lambda episode: [[(6, 0.5)], [(2, 2.0)]])
    assert [segment["rewards"] for segment in record["segments"]] == [[0.0] * 6 + [0.5], [0.0, 0.0, 2.0]]


def test_what_the_trainer_made_of_the_tokens_stands_beside_them(tmp_path):
    credit = [
        TokenCredit([None, None, -0.5, -0.5, None, -1.0, -1.0], [None, None, 0.25, 0.25, None, 0.25, 0.25]),
        TokenCredit([None, None, -2.0], [None, None, 0.25]),
    ]
    record = record_of(tmp_path / "a.jsonl", two_segment_episode(), credit=lambda episode: credit, step=12)
    assert record["step"] == 12
    assert [part["trainer_log_probs"] for part in record["segments"]] == [part.log_probs for part in credit]
    assert [part["advantages"] for part in record["segments"]] == [part.advantages for part in credit]
    assert read_episodes(tmp_path / "a.jsonl") == [two_segment_episode()]


def test_an_episode_that_was_not_trained_on_has_no_advantages(tmp_path):
    record = record_of(tmp_path / "a.jsonl", two_segment_episode(), credit=lambda episode: None)
    assert [part["advantages"] for part in record["segments"]] == [None, None]


def test_every_token_has_its_piece_of_the_text(tmp_path):
    record = record_of(tmp_path / "a.jsonl", two_segment_episode(), pieces=lambda ids: [f"<{token}>" for token in ids])
    assert "".join(record["segments"][1]["pieces"]) == "<1><9><8>"


def test_texts_stand_before_the_lists_of_tokens(tmp_path):
    keys = list(record_of(tmp_path / "a.jsonl", two_segment_episode()))
    assert keys[-1] == "segments"
    assert {"turns", "task", "failure"} < set(keys)


def test_scores_that_a_score_function_notes_are_written_with_its_rewards(tmp_path):
    def judge(episode):
        episode.scores = {"score": 4.0}
        return [[], [(2, 4.0)]]

    assert record_of(tmp_path / "a.jsonl", two_segment_episode(), rewards=judge)["scores"] == {"score": 4.0}


def test_a_failed_episode_is_written_but_not_scored(tmp_path):
    def judge(episode):
        raise AssertionError("a failed episode is no sample")

    record = record_of(tmp_path / "a.jsonl", one_segment_episode(StopReason.ENV_FAILURE), rewards=judge)
    assert record["segments"][0]["rewards"] == [0.0] * 6


def test_tokens_that_are_not_where_their_turn_says_are_refused(tmp_path):
    episode = two_segment_episode()
    episode.segments[0].turns[0].start = 1
    with pytest.raises(ValueError, match="the turn at 1"):
        write_episodes(tmp_path / "a.jsonl", [episode])
    assert list(tmp_path.iterdir()) == []


def test_values_out_of_parquet_can_be_written_and_others_are_refused(tmp_path):
    def with_extra(**extra):
        return Episode(task=Task("maze", "a", extra=extra), group=0, sample=0, seed=0)

    write_episodes(tmp_path / "a.jsonl", [with_extra(index=np.int64(4), walls=np.array([1, 2]))])
    assert read_episodes(tmp_path / "a.jsonl")[0].task.extra == {"index": 4, "walls": [1, 2]}
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        write_episodes(tmp_path / "a.jsonl", [with_extra(odd=object())])
    assert len(read_episodes(tmp_path / "a.jsonl")) == 1, "the file that was there is still whole"
