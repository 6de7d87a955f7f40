"""Wordle: find a secret five-letter word from coloured feedback."""

from openmanus_rl.envs.wordle.world import Wordle

__all__ = ["Wordle"]
