"""An episode's score: what a score function says of it, checked.

A score that is no finite number, and a function that raises, stop the run with the task named: they are never 0.
"""

import math
import traceback
from collections.abc import Mapping
from numbers import Real
from typing import Any

from torch import Tensor

from openmanus_rl.agent.episode import Episode
from openmanus_rl.errors import UserError
from openmanus_rl.rewards.registry import Score, ScoreFunction, find_score_function


def compute_score(solution_str: str, ground_truth: Any, *, reward_score_fn: str = "agentgym", **kwargs: Any) -> Score:
    """Call the score function named `reward_score_fn`."""
    return find_score_function(reward_score_fn)(solution_str, ground_truth, **kwargs)


def score_episode(reward_score_fn: str | ScoreFunction, episode: Episode) -> tuple[float, dict[str, float]]:
    """The episode's score, and the other numbers the function gave, which become metrics.

    The function gets what the agent said last as `solution_str`, the task's `ground_truth`, and by keyword `action`
    (the last one, None if it could not be read), `episode_return`, `success`, `data_source` (the world's name),
    `extra_info` (the task's extras) and `episode` (all of it).
    """
    if not episode.stop_reason.is_sample:
        raise ValueError(f"a failed episode is not a sample: {episode.task.item_id} ended by {episode.stop_reason}")
    where = f"the reward {_name(reward_score_fn)} on task {episode.task.item_id}"
    function = find_score_function(reward_score_fn) if isinstance(reward_score_fn, str) else reward_score_fn
    last = episode.turns[-1] if episode.turns else None
    try:
        score = function(
            last.text if last else "",
            episode.task.ground_truth,
            action=last.action if last else None,
            episode_return=episode.episode_return,
            success=episode.success,
            data_source=episode.task.env,
            extra_info=dict(episode.task.extra),
            episode=episode,
        )
    except UserError as error:
        raise UserError(f"{where}: {error.what}", error.hint) from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"{where} raised {type(error).__name__}: {error}", f"In {frame.name}, {frame.filename}:{frame.lineno}."
        ) from error
    return _checked(score, where)


def _checked(score: Any, where: str) -> tuple[float, dict[str, float]]:
    if not isinstance(score, Mapping):
        return _number(score, where), {}
    if "score" not in score:
        raise UserError(f"{where} gave a dict without 'score': {sorted(map(str, score))}")
    numbers = {str(key): _number(value, f"{where}, key {key!r},") for key, value in score.items()}
    return numbers.pop("score"), numbers


def _number(value: Any, where: str) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, Real):
        raise UserError(
            f"{where} gave {value!r}, not a number.",
            "A reward is a float, a dict with 'score', or a one-element tensor.",
        )
    number = float(value)
    if not math.isfinite(number):
        raise UserError(f"{where} gave {number}.", "A reward must be finite.")
    return number


def _name(reward_score_fn: str | ScoreFunction) -> str:
    if isinstance(reward_score_fn, str):
        return reward_score_fn
    module, name = getattr(reward_score_fn, "__module__", "?"), getattr(reward_score_fn, "__qualname__", "?")
    return f"{module}:{name}"
