"""Process rewards: a score function that is asked about every turn, not only about the end.

    @process_reward
    def new_places(turn, state, history, **kwargs):
        return 0.1 if state not in {earlier.state_key for earlier in history} else 0.0

`turn` is what was said, done and seen; `state` the world's state in which the turn was taken, None where the world
tells none; `history` the turns before it. By keyword come `task`, `episode`, `success` and `last` (whether it is the
last turn).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProcessReward:
    """A function that is called for each turn of an episode."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **kwargs: Any) -> Any:
        return self.function(*arguments, **kwargs)


def process_reward(function: Callable[..., Any]) -> ProcessReward:
    """Decorator: make a function a process reward. Like any score function it gives a number or a dict with `score`."""
    return ProcessReward(function)
