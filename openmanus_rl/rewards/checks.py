"""Whether an answer is a score; and if not, or if the function raised, an error that shows the episode."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from openmanus_rl.agent.episode import Episode
from openmanus_rl.errors import UserError, raised_at

_SHOWN_TURNS = 3
_SHOWN_LETTERS = 200


class RewardError(UserError):
    """A score function that raised, or whose answer is no score."""


def checked_score(score: Any, where: str, episode: Episode) -> tuple[float, dict[str, float]]:
    """The score, and the other numbers of a dict. `where` names the function and the task."""
    if not isinstance(score, Mapping):
        return _number(score, where, episode), {}
    if "score" not in score:
        raise RewardError(f"{where} gave a dict without 'score': {sorted(map(str, score))}", _shown(episode))
    numbers = {str(key): _number(value, f"{where}, key {key!r},", episode) for key, value in score.items()}
    return numbers.pop("score"), numbers


def raised(error: Exception, where: str, episode: Episode) -> RewardError:
    """What to raise for an error in a score function."""
    shown = _shown(episode)
    if isinstance(error, UserError):
        return RewardError(f"{where}: {error.what}", "\n".join(filter(None, [error.hint, shown])))
    return RewardError(f"{where} raised {type(error).__name__}: {error}", f"{raised_at(error)}\n{shown}")


def too_late(where: str, seconds: float, episode: Episode) -> RewardError:
    """What to raise for a score that did not come."""
    hint = "Raise algorithm.reward_timeout, or look whether what the function asks still answers."
    return RewardError(f"{where} was not there after {seconds:g} s.", f"{hint}\n{_shown(episode)}")


def _number(value: Any, where: str, episode: Episode) -> float:
    if isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        value = value.item()
    if not isinstance(value, Real):
        kinds = "A reward is a float, a dict with 'score', or a tensor or array of one element."
        raise RewardError(f"{where} gave {value!r}, not a number.", f"{kinds}\n{_shown(episode)}")
    number = float(value)
    if not math.isfinite(number):
        raise RewardError(f"{where} gave {number}.", f"A reward must be finite.\n{_shown(episode)}")
    return number


def _shown(episode: Episode) -> str:
    """The end of an episode in a few lines."""
    turns = episode.turns
    first = max(len(turns) - _SHOWN_TURNS, 0)
    head = f"The episode ended by {episode.stop_reason} after {len(turns)} turns"
    lines = [
        f"  turn {number}: {_short(turn.text)} -> {_short(turn.observation)} (reward {turn.reward:g})"
        for number, turn in enumerate(turns[first:], start=first)
    ]
    return "\n".join([f"{head}{', the last of them:' if lines else '.'}", *lines])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_LETTERS else f"{line[:_SHOWN_LETTERS]}…"
