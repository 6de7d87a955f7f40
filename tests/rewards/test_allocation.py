import random

import pytest

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import Judgement, allocate_rewards
from openmanus_rl.rewards.allocation import discounted


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


ALLOCATIONS = ["per_turn", "last_token", "uniform_positive", "discounted"]


def by_turn(played: Episode) -> Judgement:
    return Judgement([turn.reward for turn in played.turns], 0.0, {"score": played.episode_return})


def by_outcome(played: Episode, score: float) -> Judgement:
    return Judgement([0.0] * len(played.turns), score, {"score": score})


def without_zeros(allocation):
    return [[(position, reward) for position, reward in rewards if reward] for rewards in allocation]


def test_slip_2_environment_rewards_fall_on_each_turns_last_sampled_token():
    played = episode([(2, -0.1), (1, 1.0)], [(4, 0.5)])
    assert allocate_rewards(played, by_turn(played)) == [[(4, -0.1), (7, 1.0)], [(6, 0.5)]]


def test_an_outcome_falls_on_the_episodes_last_sampled_token():
    played = episode([(2, -0.1), (1, 1.0)], [(4, 0.5), (0, 0.0)])
    assert without_zeros(allocate_rewards(played, by_outcome(played, 1.0))) == [[], [(6, 1.0)]]
    played = episode([(2, 0.0)], [(0, 0.0)])
    assert without_zeros(allocate_rewards(played, by_outcome(played, 1.0))) == [[(4, 1.0)], []]


def test_turns_and_outcome_fall_side_by_side():
    played = episode([(2, -0.1), (1, 1.0)])
    assert allocate_rewards(played, Judgement([-0.1, 1.0], 0.5, {"score": 1.4})) == [[(4, -0.1), (7, 1.0), (7, 0.5)]]


def test_slip_2_the_reward_of_a_turn_without_sampled_tokens_goes_to_the_turn_before_it():
    played = episode([(2, 0.5), (0, 0.25)])
    assert allocate_rewards(played, by_turn(played)) == [[(4, 0.75)]]
    played = episode([(2, 0.5)], [(0, 0.25), (1, 1.0)])
    assert allocate_rewards(played, by_turn(played)) == [[(4, 0.75)], [(5, 1.0)]]


def test_the_reward_of_a_first_turn_without_sampled_tokens_goes_to_the_first_that_has_any():
    played = episode([(0, 0.5), (2, 0.25)])
    assert allocate_rewards(played, by_turn(played)) == [[(6, 0.75)]]


def test_the_last_token_gets_all_of_it():
    played = episode([(2, -0.5), (1, 1.0)], [(4, 0.5)])
    assert allocate_rewards(played, by_turn(played), "last_token") == [[], [(6, 1.0)]]


def test_what_was_earned_is_spread_evenly_and_what_was_lost_falls_on_the_last_token():
    won, lost = episode([(2, 0.0), (1, 1.0)], [(1, 1.0)]), episode([(2, 0.0), (1, -1.0)])
    assert allocate_rewards(won, by_turn(won), "uniform_positive") == [[(3, 0.5), (4, 0.5), (7, 0.5)], [(3, 0.5)]]
    assert allocate_rewards(lost, by_turn(lost), "uniform_positive") == [[(7, -1.0)]]


def test_discounted_shares_grow_towards_the_end_and_are_the_whole_score():
    played = episode([(2, 0.0), (1, 0.0)], [(4, 7.0)])
    shares = allocate_rewards(played, by_turn(played), "discounted", discount=0.5)
    assert [[(p, pytest.approx(r)) for p, r in rewards] for rewards in shares] == [[(4, 1.0), (7, 2.0)], [(6, 4.0)]]


@pytest.mark.parametrize("how", ALLOCATIONS)
def test_a_reward_without_any_sampled_token_is_refused_and_no_reward_is_fine(how):
    for judge in (by_turn, lambda played: by_outcome(played, played.episode_return)):
        with pytest.raises(UserError, match="maze-9"):
            allocate_rewards(episode([(0, 1.0)]), judge(episode([(0, 1.0)])), how)
        assert allocate_rewards(episode([(0, 0.0)]), judge(episode([(0, 0.0)])), how) == [[]]


@pytest.mark.parametrize("how", ALLOCATIONS)
@pytest.mark.parametrize("seed", range(20))
def test_allocated_rewards_are_on_sampled_tokens_and_sum_to_the_score(seed, how):
    dice = random.Random(seed)
    segments = [[(dice.randint(0, 3), dice.gauss(0, 1)) for _ in range(dice.randint(0, 4))] for _ in range(3)]
    played = episode([(1, 0.0)], *segments)
    outcome = dice.gauss(0, 1)
    judgement = Judgement([turn.reward for turn in played.turns], outcome, {"score": played.episode_return + outcome})
    allocation = allocate_rewards(played, judgement, how)
    assert sum(reward for rewards in allocation for _, reward in rewards) == pytest.approx(judgement.score)
    for segment, rewards in zip(played.segments, allocation, strict=True):
        sampled = {position for turn in segment.turns for position in range(turn.start, turn.end)}
        assert {position for position, _ in rewards} <= sampled


def test_a_discounted_score_without_a_turn_is_an_error_and_not_lost():
    nothing_played = Episode(Task("maze", "maze_1"), 0, 0, 0, [], StopReason.DONE)
    with pytest.raises(UserError, match="not one sampled token"):
        discounted(nothing_played, 1.0, 0.9)
