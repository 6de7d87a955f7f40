"""Action similarity: how like the expected list of actions the agent's own is."""

from difflib import SequenceMatcher
from typing import Any

from openmanus_rl.rewards.episodes import scored_episode
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references


@SUPPORTED_REWARD_SCORE_FNS.register("action_similarity")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Twice the actions in common, in order, over the length of both lists; `ground_truth` is an action or a list."""
    _, expected = answer_and_references("action_similarity", solution_str, ground_truth, kwargs)
    episode = scored_episode("action_similarity", kwargs)
    done = [_plain(turn.action) for turn in episode.turns if turn.action is not None]
    return SequenceMatcher(None, done, [_plain(action) for action in expected], autojunk=False).ratio()


def _plain(action: str) -> str:
    return " ".join(action.casefold().split())
