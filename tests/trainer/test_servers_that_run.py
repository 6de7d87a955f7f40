"""Servers that run already, given with env.urls: they play the run's options, or say why not."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import live_service

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client import EnvFailure
from openmanus_rl.envs.maze import Maze
from openmanus_rl.envs.wordle import Wordle
from openmanus_rl.trainer.agents import _client
from openmanus_rl.trainer.checked_config import load_checked_config


def start(url, name, *overrides):
    config = load_checked_config(None, [f"env.name={name}", f"env.urls=[{url}]", *overrides])

    async def play():
        async with _client(config, {name: [url]}) as client:
            return (await client.start(Task(name, f"{name}_2"))).observation

    return asyncio.run(play())


def test_a_server_that_runs_plays_the_options_of_the_run():
    task = Task("maze", "maze_2")
    assert Maze(size=9).reset(task) != Maze().reset(task)
    with live_service(Maze) as url:
        assert start(url, "maze", "env.options.size=9") == Maze(size=9).reset(task)


def test_a_server_that_runs_says_that_it_was_started_with_other_files(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).write_text("apple\nzebra\nwater\n")
    with live_service(Wordle, {"word_list": str(tmp_path / "here")}) as url:
        assert start(url, "wordle", f"env.options.word_list={tmp_path / 'here'}")
        with pytest.raises(EnvFailure, match="word_list: only who starts the server"):
            start(url, "wordle", f"env.options.word_list={tmp_path / 'there'}")
