"""Mathematical equality, by math-verify: 1 where the answer means the expected number or expression, else 0.

It is asked in a process of its own: comparing two expressions may take for ever, and only a process can be stopped.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any

from openmanus_rl.errors import UserError
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references

SECONDS = 5
"""For reading an answer, and for each comparison; one that takes longer is no right answer."""


@SUPPORTED_REWARD_SCORE_FNS.register("math")
async def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> dict[str, float]:
    """`1/2`, `0.5` and `$\\frac{1}{2}$` are the same. `unreadable` is 1 for an answer without mathematics in it."""
    answer, expected = answer_and_references("math", solution_str, ground_truth, kwargs)
    readable, equal, bad = await _compare_apart(answer, expected)
    if bad is not None:
        raise UserError(
            f"the reward math cannot read the ground truth {bad!r}.",
            "The column reward_model.ground_truth must hold a number or LaTeX.",
        )
    return {"score": float(equal), "unreadable": float(not readable)}


async def _compare_apart(answer: str, expected: list[str]) -> tuple[bool, bool, str | None]:
    """`compare` in the process; one that has died, of this or of something else, is made anew once."""
    for _ in range(2):
        process = _process()
        try:
            return await asyncio.get_running_loop().run_in_executor(process, compare, answer, expected)
        except BrokenProcessPool:
            if _process() is process:  # else another has made a new one already
                _process.cache_clear()
    raise UserError(
        f"the process that compares mathematics died twice on the answer {answer[:80]!r}.",
        "Look whether the machine's memory is full; algorithm.reward_on_error=fail leaves such an episode out.",
    )


def compare(answer: str, expected: list[str]) -> tuple[bool, bool, str | None]:
    """Whether the answer can be read, whether it equals one of the expected ones, and one that cannot be read."""
    from math_verify import verify

    golds = [(text, _read(text)) for text in expected]
    if unreadable := [text for text, gold in golds if not gold]:
        return False, False, unreadable[0]
    said = _read(answer)
    equal = any(verify(gold, said, timeout_seconds=SECONDS) for _, gold in golds) if said else False
    return bool(said), equal, None


def _read(text: str) -> list[Any]:
    """What is mathematics in a text; bare LaTeX counts too."""
    from math_verify import parse

    found: list[Any] = parse(text, parsing_timeout=SECONDS)
    if "\\" in text and "$" not in text and "boxed" not in text:
        found = parse(f"${text}$", parsing_timeout=SECONDS) or found
    return found


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
