from dataclasses import replace

import pytest
import torch
from credit_cases import Played, Token, assert_streams_equal, by_episode, play, to_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.algorithms.gae import temporal_difference
from openmanus_rl.algorithms.turn_gae import TurnGaeOptions, turn_gae
from openmanus_rl.errors import UserError

FRACTIONS = st.sampled_from([0.0, 0.6, 0.95, 1.0])


def by_formula(episode: Played, options: TurnGaeOptions) -> list[float]:
    """From what is meant: a turn leads to the return of the next, a token to the rest of its turn and what follows it.

    A return is as much what was really earned as λ says, and else the critic's word.
    """
    advantages: list[float] = []
    next_value = next_return = episode.end_value
    for turn in reversed(episode.turns):
        after_turn = options.gamma * (options.lam * next_return + (1 - options.lam) * next_value)
        later: list[float] = []
        for place in reversed(range(len(turn))):
            if place == len(turn) - 1:
                earned = turn[place].reward + after_turn
            else:
                critics = turn[place + 1].value
                really = later[0] + critics
                mixed = options.lam_token * really + (1 - options.lam_token) * critics
                earned = turn[place].reward + options.gamma_token * mixed
            later.insert(0, earned - turn[place].value)
        advantages = later + advantages
        next_value, next_return = turn[0].value, sum(token.reward for token in turn) + after_turn
    return advantages


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), gamma=FRACTIONS, lam=FRACTIONS, gamma_token=FRACTIONS, lam_token=FRACTIONS)
def test_turn_gae_is_gae_over_turns_and_inside_each_turn_gae_towards_its_target(
    seed, gamma, lam, gamma_token, lam_token
):
    options = TurnGaeOptions(gamma=gamma, lam=lam, gamma_token=gamma_token, lam_token=lam_token, whiten=False)
    episodes = play(seed)
    batch = to_batch(episodes, shuffle=seed)
    answer = turn_gae(batch, options)
    expected = {episode.name: by_formula(episode, options) for episode in episodes}
    targets = {
        episode.name: [a + token.value for a, token in zip(expected[episode.name], episode.sampled, strict=True)]
        for episode in episodes
    }
    assert_streams_equal(by_episode(batch, answer.advantages_RT), expected)
    assert_streams_equal(by_episode(batch, answer.returns_RT), targets)
    assert (answer.advantages_RT[~batch.response_mask_RT] == 0).all()


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), padding=st.integers(0, 90))
def test_turn_gae_depends_on_neither_row_order_nor_padding(seed, padding):
    episodes = play(seed)
    plain, moved = to_batch(episodes), to_batch(episodes, shuffle=seed + 1, padding=padding)
    assert_streams_equal(
        by_episode(moved, turn_gae(moved, TurnGaeOptions()).advantages_RT),
        by_episode(plain, turn_gae(plain, TurnGaeOptions()).advantages_RT),
    )


def test_a_token_answers_for_no_reward_before_it():
    """As a KL in the reward gives them: a price on the turn's first token is none of the later tokens' doing."""
    priced = [Token(0, reward=-1.0), Token(0), Token(0)]
    options = TurnGaeOptions(whiten=False)
    assert turn_gae(to_batch([Played(0, 0, [priced])]), options).advantages_RT.tolist() == [[-1.0, 0.0, 0.0]]
    spread = [Token(0, reward=0.25)] * 4
    assert turn_gae(to_batch([Played(0, 0, [spread])]), options).returns_RT.tolist() == [[1.0, 0.75, 0.5, 0.25]]


def test_rewards_on_the_last_tokens_of_turns_are_the_turns_targets_bit_for_bit():
    batch = to_batch(play(4))
    rewards_N = torch.where(batch.turns.last_N, batch.sampled(torch.rand(batch.response_mask_RT.shape)), 0)
    batch = replace(batch, token_level_rewards_RT=batch.rows(rewards_N.double()))
    answer = turn_gae(batch, TurnGaeOptions(whiten=False))
    value_K = batch.critic_values()[batch.turns.first_N]
    advantage_K = temporal_difference(
        batch.turn_rewards(), value_K, batch.turn_episodes, batch.end_values_E(), TurnGaeOptions().gamma, 0.9
    )
    last_N = batch.sampled(answer.advantages_RT)[batch.turns.last_N]
    assert torch.equal(last_N, advantage_K + value_K - batch.critic_values()[batch.turns.last_N])


def test_a_longer_thought_does_not_discount_the_reward_of_the_next_turn():
    def first_turns_credit(thought: int) -> float:
        tokens = [Token(0)] * thought + [Token(-1)] * 3 + [Token(1, reward=1.0)]
        answer = turn_gae(to_batch([Played(0, 0, [tokens])]), TurnGaeOptions(gamma=0.5, lam=1.0, whiten=False))
        return answer.advantages_RT[0, 0].item()

    assert first_turns_credit(1) == first_turns_credit(70) == pytest.approx(0.5)


def test_a_turn_may_span_a_segments_end_only_as_the_same_turn():
    one_turn = to_batch([Played(0, 0, [[Token(0)], [Token(0, reward=1.0)]])])
    two_turns = to_batch([Played(0, 0, [[Token(0)], [Token(1, reward=1.0)]])])
    options = TurnGaeOptions(gamma=0.5, lam=1.0, whiten=False)
    assert turn_gae(one_turn, options).advantages_RT.tolist() == [[1.0], [1.0]]
    assert turn_gae(two_turns, options).advantages_RT.tolist() == [[0.5], [1.0]]


def test_the_last_turn_of_one_episode_and_the_first_of_the_next_are_different_turns():
    batch = to_batch([Played(0, 0, [[Token(0)]]), Played(1, 0, [[Token(0, reward=1.0)]])])
    assert turn_gae(batch, TurnGaeOptions(whiten=False)).advantages_RT.tolist() == [[0.0], [1.0]]


def test_whitened_turn_advantages_have_mean_zero_and_deviation_one():
    batch = to_batch(play(3), padding=4)
    sampled = turn_gae(batch, TurnGaeOptions()).advantages_RT[batch.response_mask_RT]
    assert sampled.mean().abs() < 1e-9
    assert (sampled.std(correction=0) - 1).abs() < 1e-6


def test_turn_gae_without_values_says_that_it_needs_a_critic():
    with pytest.raises(UserError, match="needs a critic"):
        turn_gae(to_batch(play(1), critic=False), TurnGaeOptions())
