"""What scores of text compare: the agent's answer with the expected ones."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from openmanus_rl.errors import UserError


def answer_and_references(
    name: str, solution_str: str, ground_truth: Any, kwargs: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """The agent's last action, or else all of `solution_str`; and the ground truth as a list of texts."""
    expected = list(ground_truth) if isinstance(ground_truth, list | tuple | set) else [ground_truth]
    if not expected or None in expected:
        raise UserError(
            f"the reward {name} has no ground truth to compare with.",
            "Put it into the data: the column reward_model.ground_truth.",
        )
    action = kwargs.get("action")
    return (solution_str if action is None else action), [str(text) for text in expected]


def words(text: str) -> list[str]:
    """Words and numbers in small letters; punctuation around them does not count."""
    return re.findall(r"\w+(?:[.,'’-]\w+)*", unicodedata.normalize("NFKC", text).casefold())
