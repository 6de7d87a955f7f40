"""`openmanus-rl replay`: recorded episodes against the live world."""

from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.records import write_episodes
from openmanus_rl.agent.replay import replay_episode
from openmanus_rl.cli.main import app
from openmanus_rl.envs import Task, make_environment
from openmanus_rl.errors import UserError


def turn_of(action, **more):
    given = {"start": 0, "token_ids": [5], "log_probs": [0.0], "versions": [0], "text": "", "invalid_reason": None}
    return Turn(**given, action=action, **more)


def played(item_id, **options):
    """An episode by the expert, with one unparsed answer in it."""
    world = make_environment("maze", **options)
    first = world.reset(Task("maze", item_id)).text
    turns = [turn_of(None, state_key=world.state_key(), observation="Invalid answer", reward=-0.1)]
    while True:
        key, action = world.state_key(), world.expert_action()
        result = world.step(action)
        turns.append(turn_of(action, state_key=key, observation=result.observation.text, reward=result.reward))
        if result.done:
            segment = Segment(ids=[5], prompt_length=0, turns=turns)
            task, ended = Task("maze", item_id), StopReason.DONE
            return Episode(task, 0, 0, 7, [segment], ended, success=True, first_observation=first)


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run" / "episodes" / "train_step_000001.jsonl"
    path.parent.mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"env": {"options": {"size": 5}}}))
    write_episodes(path, [played("maze_3", size=5), played("maze_12", size=5)])
    return path


def test_episodes_of_a_run_are_the_same_on_the_live_world_with_its_options(run):
    result = CliRunner().invoke(app, ["replay", str(run)])
    assert result.exit_code == 0, result.output
    assert "2 of 2 episodes are the same" in result.output


def test_one_episode_can_be_chosen(run):
    result = CliRunner().invoke(app, ["replay", f"{run}:2"])
    assert result.exit_code == 0
    assert "2: maze_12" in result.output
    assert "maze_3" not in result.output


def test_another_world_is_told_turn_by_turn_with_exit_code_1(run):
    result = CliRunner().invoke(app, ["replay", f"{run}:1", "--options", '{"size": 4}'])
    assert result.exit_code == 1
    assert "turn 2: what" in result.output
    assert "recorded:" in result.output
    assert "live:" in result.output


def test_without_the_config_of_its_run_a_difference_may_be_one_of_options(run):
    (run.parent.parent / "config.yaml").unlink()
    result = CliRunner().invoke(app, ["replay", str(run)])
    assert result.exit_code == 1
    assert "give --options" in result.output


@pytest.mark.parametrize("changed", [{"reward": 0.5}, {"observation": "else"}, {"state_key": "else"}])
def test_each_kind_of_difference_is_told_with_its_turn(changed):
    episode = played("maze_3")
    turns = episode.segments[0].turns
    turns[1] = replace(turns[1], **changed)
    (difference,) = replay_episode(episode, make_environment("maze"))
    assert difference.startswith("turn 2: ")


def test_another_first_observation_is_told():
    (difference,) = replay_episode(replace(played("maze_3"), first_observation="else"), make_environment("maze"))
    assert difference.startswith("turn 1: what is seen before it")


def test_an_end_that_does_not_come_or_comes_too_early_is_told():
    short, long = played("maze_12"), played("maze_12")
    short.segments[0].turns.pop()
    assert "the end" in replay_episode(short, make_environment("maze"))[0]
    long.segments[0].turns.append(turn_of("up", state_key=None))
    assert "over" in replay_episode(long, make_environment("maze"))[0]


@pytest.mark.parametrize("content", [b'{"step": 1}\n', b"nonsense\n", b"\xd7\n", b"[]\n"])
def test_a_file_of_something_else_is_a_users_mistake(tmp_path, content):
    (tmp_path / "other.jsonl").write_bytes(content)
    result = CliRunner().invoke(app, ["replay", str(tmp_path / "other.jsonl")])
    assert isinstance(result.exception, UserError)
    assert "other.jsonl, line 1" in str(result.exception)


@pytest.mark.parametrize("which", ["nowhere.jsonl", "{run}:9"])
def test_episodes_that_are_not_there_are_a_users_mistake(run, which):
    result = CliRunner().invoke(app, ["replay", which.format(run=run)])
    assert isinstance(result.exception, UserError)
