import itertools
import statistics
from dataclasses import replace

import pytest
import torch
from credit_cases import Played, Token, assert_streams_equal, by_episode, play, to_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.algorithms.groups import differing_groups, group_mean_std, groups_of_one, zero_variance_groups
from openmanus_rl.algorithms.grpo import GrpoOptions, grpo
from openmanus_rl.algorithms.registry import ESTIMATORS, estimator_options
from openmanus_rl.errors import UserError

SEEDS = st.integers(0, 10_000)


def outcome(name: int, group: int, reward: float, tokens: int = 2) -> Played:
    return Played(name, group, [[Token(0)] * (tokens - 1) + [Token(0, reward=reward)]])


def by_formula(episodes: list[Played], options: GrpoOptions) -> dict[int, list[float]]:
    expected = {}
    for episode in episodes:
        siblings = [other.total for other in episodes if other.group == episode.group]
        difference = episode.total - statistics.fmean(siblings)
        scale = statistics.stdev(siblings) + options.epsilon if options.normalise_std else 1.0
        expected[episode.name] = [difference / scale] * len(episode.sampled)
    return expected


@settings(max_examples=60)
@given(seed=SEEDS, siblings=st.integers(2, 5), normalise_std=st.booleans())
def test_grpo_is_the_return_minus_the_siblings_mean_over_their_deviation_on_every_sampled_token(
    seed, siblings, normalise_std
):
    options = GrpoOptions(normalise_std=normalise_std)
    episodes = play(seed, siblings=siblings)
    batch = to_batch(episodes, shuffle=seed, critic=False)
    answer = grpo(batch, options)
    assert_streams_equal(by_episode(batch, answer.advantages_RT), by_formula(episodes, options))
    assert (answer.advantages_RT[~batch.response_mask_RT] == 0).all()
    assert answer.returns_RT is None


@settings(max_examples=30)
@given(seed=SEEDS, padding=st.integers(0, 20))
def test_grpo_depends_on_neither_row_order_nor_padding(seed, padding):
    episodes = play(seed)
    plain, moved = to_batch(episodes), to_batch(episodes, shuffle=seed + 1, padding=padding)
    assert_streams_equal(
        by_episode(moved, grpo(moved, GrpoOptions()).advantages_RT),
        by_episode(plain, grpo(plain, GrpoOptions()).advantages_RT),
    )


@settings(max_examples=30)
@given(seed=SEEDS, names=st.permutations([3, 50, 700]))
def test_grpo_does_not_depend_on_the_groups_names_or_order(seed, names):
    episodes = play(seed)
    renamed = dict(zip(sorted({episode.group for episode in episodes}), names, strict=True))
    moved = [Played(e.name, renamed[e.group], e.segments) for e in episodes]
    plain_batch, moved_batch = to_batch(episodes), to_batch(moved)
    assert torch.equal(grpo(moved_batch, GrpoOptions()).advantages_RT, grpo(plain_batch, GrpoOptions()).advantages_RT)


@settings(max_examples=30)
@given(rewards=st.lists(st.integers(-8, 8), min_size=2, max_size=6), shift=st.integers(-100, 100))
def test_grpo_does_not_change_when_every_return_of_a_group_is_shifted(rewards, shift):
    plain = to_batch([outcome(name, 0, reward) for name, reward in enumerate(rewards)])
    shifted = to_batch([outcome(name, 0, reward + shift) for name, reward in enumerate(rewards)])
    torch.testing.assert_close(
        grpo(shifted, GrpoOptions()).advantages_RT, grpo(plain, GrpoOptions()).advantages_RT, rtol=1e-9, atol=1e-9
    )


def test_a_group_of_equal_returns_gets_exactly_zero_and_is_reported_in_whatever_order_rewards_came():
    rewards = itertools.permutations([1.0, -0.05, -0.05, -0.05])
    same = [
        Played(name, 5, [[Token(0, reward) for reward in order[:1]], [Token(1, reward) for reward in order[1:]]])
        for name, order in enumerate(rewards)
    ]
    batch = to_batch([*same, outcome(90, 6, 0.0), outcome(91, 6, 1.0)])
    batch = replace(batch, token_level_rewards_RT=batch.token_level_rewards_RT.float())
    assert zero_variance_groups(batch).tolist() == [5]
    advantages = grpo(batch, GrpoOptions()).advantages_RT
    assert (advantages[batch.group_index_R == 5] == 0).all()
    assert (advantages[batch.group_index_R == 6].abs().sum(-1) > 0).all()


def test_returns_that_differ_by_rounding_are_equal_for_every_estimator_of_groups():
    """In float32 -0.1 - 0.1 - 0.1 + 1.3, 1 and 0.1 + 0.9 are three numbers, as are 0.3 - 0.2 - 0.1 and 0."""
    ways = [[-0.1, -0.1, -0.1, 1.3], [1.0], [0.1, 0.9]], [[0.3, -0.2, -0.1], [0.0], [0.7, -0.6, -0.1]]
    same = [
        Played(10 * group + number, group, [[Token(turn, reward) for turn, reward in enumerate(rewards)]])
        for group, of_group in enumerate(ways)
        for number, rewards in enumerate(of_group)
    ]
    batch = to_batch([*same, outcome(90, 6, 1e-3), outcome(91, 6, 1.01e-3)])
    batch = replace(batch, token_level_rewards_RT=batch.token_level_rewards_RT.float())
    assert len(set(batch.episode_returns()[:3].tolist())) == 3
    assert zero_variance_groups(batch).tolist() == [0, 1]
    for name in ("grpo", "drgrpo", "rloo", "reinforce_pp_baseline"):
        advantages = ESTIMATORS[name](batch, estimator_options(name, {})).advantages_RT
        alike = advantages[batch.group_index_R != 6][batch.response_mask_RT[batch.group_index_R != 6]]
        assert len(alike.unique()) == 1, name


def test_refills_and_credit_agree_on_which_groups_can_be_learnt_from():
    scores = {0: [1.3 - 0.1 - 0.1 - 0.1, 1.0], 1: [1.0, 1.0 + 1e-8], 2: [0.0, 1e-4], 3: [1e-3, 2e-3]}
    episodes = [outcome(10 * group + n, group, score) for group, of in scores.items() for n, score in enumerate(of)]
    batch = to_batch(episodes)
    in_float32 = replace(batch, token_level_rewards_RT=batch.token_level_rewards_RT.float())
    assert differing_groups(batch.episode_returns(), batch.group_index_E).tolist() == [2, 3]
    assert zero_variance_groups(in_float32).tolist() == zero_variance_groups(batch).tolist() == [0, 1]


def test_a_lone_episode_is_reported_so_that_the_trainer_can_leave_its_group_out():
    batch = to_batch([outcome(0, 8, 1.0), outcome(1, 9, 1.0), outcome(2, 9, 0.0)])
    assert groups_of_one(batch).tolist() == [8]
    assert zero_variance_groups(batch).tolist() == []


def test_a_lone_episode_is_refused_even_if_it_has_several_rows():
    batch = to_batch([Played(0, 8, [[Token(0)], [Token(1, 1.0)]]), outcome(1, 9, 1.0), outcome(2, 9, 0.0)])
    with pytest.raises(UserError, match="group 8 has one episode"):
        grpo(batch, GrpoOptions())


def test_the_deviation_of_a_group_is_over_n_minus_one():
    mean, std = group_mean_std(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([4, 4, 2]))
    assert mean.tolist() == [0.5, 0.5, 5.0]
    torch.testing.assert_close(std, torch.tensor([0.5**0.5, 0.5**0.5, 0.0]))


def test_the_mean_of_equal_returns_is_exactly_that_return():
    mean, std = group_mean_std(torch.full((3,), 0.1, dtype=torch.float64), torch.zeros(3))
    assert mean.tolist() == [0.1] * 3
    assert std.tolist() == [0.0] * 3
