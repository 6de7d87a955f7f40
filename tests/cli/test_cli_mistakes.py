"""A user's mistake is one clear message and exit code 2, never a stack trace."""

import json
import os
import signal
import socket

import pytest
from tiny_runs import wait_until


def assert_mistake(result, *parts: str) -> None:
    assert result.code == 2, f"exit code {result.code}\n{result.out}\n{result.err}"
    assert "Traceback" not in result.err
    assert result.err.startswith("openmanus-rl: error: ")
    assert result.err.count("openmanus-rl: error: ") == 1
    for part in parts:
        assert part in result.err


def test_an_unknown_environment_lists_the_known_ones(cli):
    assert_mistake(cli("train", "--env_name", "marble"), "'marble'", "maze, textcraft, wordle", "module:name")
