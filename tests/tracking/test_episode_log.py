"""Where a run's episodes are, and whose rewards they carry. What a record holds: tests/agent/test_records.py."""

import json

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.records import RecordDetails, read_episodes
from openmanus_rl.envs.base import Task
from openmanus_rl.tracking.episodes import EpisodeLog


def episode():
    turn = Turn(2, [3, 4], [-0.5, -0.25], [0, 0], "Action: up", "up", None, "0,0", reward=1.0)
    segment = Segment([1, 2, 3, 4], 2, [turn])
    return Episode(Task("maze", "maze_4"), 0, 0, 9, [segment], StopReason.DONE, success=True)


def test_each_kind_and_step_has_a_file_that_reads_back(tmp_path):
    log = EpisodeLog(tmp_path / "episodes")
    path = log.write("validation", 50, [episode(), episode()])
    assert path == tmp_path / "episodes" / "validation_step_000050.jsonl"
    assert log.write("train", 50, [episode()]) != path
    assert read_episodes(path) == [episode(), episode()]


def test_a_step_that_is_played_again_replaces_its_file(tmp_path):
    log = EpisodeLog(tmp_path)
    log.write("train", 3, [episode(), episode()])
    assert len(read_episodes(log.write("train", 3, [episode()]))) == 1


def test_tokens_carry_the_worlds_rewards_unless_others_are_given(tmp_path):
    plain = EpisodeLog(tmp_path).write("train", 1, [episode()])
    given = EpisodeLog(tmp_path, RecordDetails(lambda _: [[(2, 0.5)]])).write("train", 2, [episode()])
    assert json.loads(plain.read_text())["segments"][0]["rewards"] == [0.0, 0.0, 0.0, 1.0]
    assert json.loads(given.read_text())["segments"][0]["rewards"] == [0.0, 0.0, 0.5, 0.0]
