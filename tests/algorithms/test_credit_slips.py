"""Mistakes that others made, each a test: numbered as in the list of slips."""

from dataclasses import replace

import pytest
import torch
from credit_cases import Played, Token, to_batch

from openmanus_rl.algorithms.gae import GaeOptions, gae
from openmanus_rl.algorithms.grpo import GrpoOptions, grpo
from openmanus_rl.algorithms.kl import apply_kl_penalty
from openmanus_rl.algorithms.loss_ppo import PpoOptions, ppo
from openmanus_rl.algorithms.losses import Denominators, LossInputs, aggregate
from openmanus_rl.algorithms.turn_gae import TurnGaeOptions, turn_gae
from openmanus_rl.algorithms.value_loss import value_loss
from openmanus_rl.errors import UserError

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@pytest.mark.parametrize(
    ("estimator", "options"),
    [(gae, GaeOptions(whiten=False)), (turn_gae, TurnGaeOptions(gamma=1.0, lam=1.0, whiten=False))],
)
def test_slip_1_a_terminal_reward_credits_tokens_before_an_observation(estimator, options):
    tokens = [Token(0), Token(0), Token(-1), Token(-1), Token(1), Token(1, reward=1.0)]
    advantages = estimator(to_batch([Played(0, 0, [tokens])]), options).advantages_RT[0]
    assert (advantages[:2] > 0.8).all()
    assert advantages[2:4].tolist() == [0.0, 0.0]
    assert (advantages[4:] > 0.9).all()


def test_slip_2_a_reward_on_a_token_that_was_not_sampled_is_refused_with_its_place():
    batch = to_batch([Played(0, 0, [[Token(0), Token(-1)]])])
    with pytest.raises(ValueError, match="row 0 has a reward on response token 1"):
        replace(batch, token_level_rewards_RT=torch.tensor([[0.0, 1.0]]))


@pytest.mark.parametrize("mode", MODES)
def test_slip_3_a_loss_over_an_all_masked_batch_is_zero_with_a_zero_gradient(mode):
    log_probs = torch.randn(2, 3, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    denominators = Denominators.of(nothing, torch.tensor([0, 1]), length_norm=8)
    inputs = LossInputs(log_probs, torch.randn(2, 3), torch.randn(2, 3), nothing)
    policy = aggregate(ppo(inputs, PpoOptions()).loss_RT, nothing, mode, denominators)
    critic = aggregate(value_loss(log_probs, *torch.randn(2, 2, 3), nothing, 0.5).loss_RT, nothing, mode, denominators)
    (policy + critic).backward()
    assert policy.item() == critic.item() == 0.0
    assert log_probs.grad.tolist() == [[0.0] * 3] * 2


def test_slip_4_a_group_of_one_is_an_error_that_names_the_group():
    batch = to_batch([Played(0, 41, [[Token(0, 1.0)]]), Played(1, 42, [[Token(0, 1.0)]]), Played(2, 42, [[Token(0)]])])
    with pytest.raises(UserError, match="group 41 has one episode: grpo compares siblings"):
        grpo(batch, GrpoOptions())


def test_slip_9_an_integer_mask_is_refused_wherever_it_could_index():
    batch = to_batch([Played(0, 0, [[Token(0), Token(-1)]])])
    integers, zeros = batch.response_mask_RT.long(), torch.zeros(1, 2)
    for use in (
        lambda: replace(batch, response_mask_RT=integers),
        lambda: LossInputs(zeros, zeros, zeros, integers),
        lambda: Denominators.of(integers, torch.tensor([0])),
        lambda: value_loss(zeros, zeros, zeros, integers, 0.5),
        lambda: apply_kl_penalty(zeros, zeros, zeros, integers, 0.1, "k1"),
    ):
        with pytest.raises(TypeError, match="response_mask must be bool"):
            use()


def test_slip_13_the_mean_over_unequal_micro_batches_is_over_tokens_not_over_micro_batches():
    loss, mask = (
        torch.tensor([[1.0, 1.0, 1.0, 1.0], [9.0, 0.0, 0.0, 0.0]]),
        torch.tensor([[True] * 4, [True] + [False] * 3]),
    )
    denominators = Denominators.of(mask, torch.tensor([0, 1]))
    parts = [aggregate(loss[[r]], mask[[r]], "token-mean", denominators.select(torch.tensor([r]))) for r in (0, 1)]
    assert sum(parts).item() == pytest.approx(13 / 5)


def test_slip_14_an_episode_of_several_rows_counts_once_in_its_group():
    whole = [Token(0), Token(1), Token(2, reward=1.0)]
    losers = [Played(1, 0, [[Token(0)]]), Played(2, 0, [[Token(0)]])]
    one_row = to_batch([Played(0, 0, [whole]), *losers])
    three_rows = to_batch([Played(0, 0, [[token] for token in whole]), *losers])
    assert one_row.episode_returns().tolist() == three_rows.episode_returns().tolist() == [1.0, 0.0, 0.0]
    one, three = (grpo(batch, GrpoOptions()).advantages_RT for batch in (one_row, three_rows))
    assert one[0].tolist() == three[:3, 0].tolist()
    assert one[1:, 0].tolist() == three[3:, 0].tolist()
