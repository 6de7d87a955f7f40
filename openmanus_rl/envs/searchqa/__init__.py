"""SearchQA: answer a question by looking things up, one after the other."""

from openmanus_rl.envs.searchqa.world import SearchQA

__all__ = ["SearchQA"]
