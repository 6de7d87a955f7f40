"""Mathematical equality by math-verify."""

import asyncio
import os

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.rewards import compute_score, math
from openmanus_rl.rewards.math import compare


@pytest.mark.parametrize(
    ("answer", "truth", "equal"),
    [
        ("The answer is 1/2.", "0.5", True),
        (r"$\frac{1}{2}$", "0.5", True),
        (r"\frac{2}{4}", "1/2", True),
        (r"so \boxed{x^2+2x+1}", "$(x+1)^2$", True),
        ("1,000", "1000", True),
        ("7", "8", False),
        (r"$\sqrt{2}$", "1.4", False),
    ],
)
def test_what_means_the_same_is_equal(answer, truth, equal):
    assert compare(answer, [truth]) == (True, equal, None)


def test_any_of_several_answers_will_do():
    assert compare("3", ["2", "3"]) == (True, True, None)


def test_words_are_unreadable_and_wrong():
    assert compare("I do not know", ["3"]) == (False, False, None)


def test_it_is_asked_in_a_process_of_its_own_and_says_what_it_could_not_read():
    ask = lambda answer, truth: asyncio.run(compute_score(answer, truth, reward_score_fn="math"))  # noqa: E731
    assert ask("so x = 4", "4") == {"score": 1.0, "unreadable": 0.0}
    assert ask("hm", "4") == {"score": 0.0, "unreadable": 1.0}
    with pytest.raises(UserError, match="cannot read the ground truth 'a dog'"):
        ask("4", "a dog")
    with pytest.raises(UserError, match="no ground truth"):
        ask("4", None)


def test_a_process_that_died_is_made_anew():
    ask = lambda: asyncio.run(compute_score("so x = 4", "4", reward_score_fn="math"))  # noqa: E731
    ask()
    died = math._process().submit(os._exit, 1)
    assert died.exception(timeout=60) is not None
    assert ask() == {"score": 1.0, "unreadable": 0.0}
