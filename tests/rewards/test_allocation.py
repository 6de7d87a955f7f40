import random

import pytest

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import agentgym, allocate_rewards


def episode(*segments: list[tuple[int, float]]) -> Episode:
    """Segments of turns (sampled tokens, reward): a prompt of 3 tokens, and 2 of observation after each turn."""
    made = []
    for turns in segments:
        start, segment = 3, Segment([], 3)
        for tokens, reward in turns:
            ids = list(range(tokens))
            segment.turns.append(Turn(start, ids, [0.0] * tokens, [0] * tokens, "", None, None, None, reward=reward))
            start += tokens + 2
        segment.ids = [0] * start
        made.append(segment)
    return Episode(Task("maze", "maze-9"), 0, 0, 0, made, StopReason.DONE)


def test_slip_2_environment_rewards_fall_on_each_turns_last_sampled_token():
    played = episode([(2, -0.1), (1, 1.0)], [(4, 0.5)])
    assert allocate_rewards(played, "agentgym", 1.4) == [[(4, -0.1), (7, 1.0)], [(6, 0.5)]]


def test_an_outcome_falls_on_the_episodes_last_sampled_token():
    played = episode([(2, -0.1), (1, 1.0)], [(4, 0.5), (0, 0.0)])
    assert allocate_rewards(played, "exact_match", 1.0) == [[], [(6, 1.0)]]
    assert allocate_rewards(episode([(2, 0.0)], [(0, 0.0)]), "exact_match", 1.0) == [[(4, 1.0)], []]


def test_slip_2_the_reward_of_a_turn_without_sampled_tokens_goes_to_the_turn_before_it():
    assert allocate_rewards(episode([(2, 0.5), (0, 0.25)]), "agentgym", 0.75) == [[(4, 0.75)]]
    assert allocate_rewards(episode([(2, 0.5)], [(0, 0.25), (1, 1.0)]), "agentgym", 1.75) == [[(4, 0.75)], [(5, 1.0)]]


def test_the_reward_of_a_first_turn_without_sampled_tokens_goes_to_the_first_that_has_any():
    assert allocate_rewards(episode([(0, 0.5), (2, 0.25)]), "agentgym", 0.75) == [[(6, 0.75)]]


def test_the_registered_function_itself_is_as_good_as_its_name():
    played = episode([(2, -0.1), (1, 1.0)])
    assert allocate_rewards(played, agentgym.compute_score, 0.9) == allocate_rewards(played, "agentgym", 0.9)


@pytest.mark.parametrize("name", ["agentgym", "exact_match"])
def test_a_reward_without_any_sampled_token_is_refused_and_no_reward_is_fine(name):
    with pytest.raises(UserError, match="maze-9"):
        allocate_rewards(episode([(0, 1.0)]), name, 1.0)
    assert allocate_rewards(episode([(0, 0.0)]), name, 0.0) == [[]]


@pytest.mark.parametrize("seed", range(20))
def test_allocated_rewards_are_on_sampled_tokens_and_sum_to_the_score(seed):
    dice = random.Random(seed)
    segments = [[(dice.randint(0, 3), dice.gauss(0, 1)) for _ in range(dice.randint(0, 4))] for _ in range(3)]
    played = episode([(1, 0.0)], *segments)
    for name in ("agentgym", "exact_match"):
        allocation = allocate_rewards(played, name, played.episode_return)
        assert sum(reward for rewards in allocation for _, reward in rewards) == pytest.approx(played.episode_return)
        for segment, rewards in zip(played.segments, allocation, strict=True):
            sampled = {position for turn in segment.turns for position in range(turn.start, turn.end)}
            assert {position for position, _ in rewards} <= sampled
