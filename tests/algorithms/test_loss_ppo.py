import math

import pytest
import torch
from torch.autograd import gradcheck

from openmanus_rl.algorithms.loss_ppo import PpoOptions, ppo
from openmanus_rl.algorithms.losses import LossInputs, TokenLoss

SHAPE = (3, 5)


def inputs(seed: int = 0, spread: float = 0.5, mask: torch.Tensor | None = None) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)
    old, step, advantages = torch.randn(3, *SHAPE, dtype=torch.float64, generator=generator)
    sampled = torch.rand(SHAPE, generator=generator) < 0.7 if mask is None else mask
    return LossInputs((old + spread * step).requires_grad_(), old, advantages, sampled)


def one_token(log_ratio: float, advantage: float, **options: float) -> tuple[TokenLoss, torch.Tensor]:
    log_prob = torch.tensor([[log_ratio]], dtype=torch.float64, requires_grad=True)
    zeros, mask = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    return ppo(LossInputs(log_prob, zeros, zeros + advantage, mask), PpoOptions(**options)), log_prob


def by_formula(ratio: float, advantage: float, options: PpoOptions) -> float:
    held = min(max(ratio, 1 - options.clip_low), 1 + options.clip_high)
    objective = min(ratio * advantage, held * advantage)
    if options.dual_clip is not None and advantage < 0:
        objective = max(objective, options.dual_clip * advantage)
    return -objective


@pytest.mark.parametrize("options", [PpoOptions(), PpoOptions(clip_low=0.1, clip_high=0.4, dual_clip=1.5)])
def test_each_tokens_loss_is_the_papers_clipped_objective(options):
    given = inputs(spread=1.0)
    loss = ppo(given, options).loss_RT
    for row in range(SHAPE[0]):
        for column in range(SHAPE[1]):
            if given.response_mask_RT[row, column]:
                ratio = math.exp((given.log_probs_RT - given.old_log_probs_RT)[row, column].item())
                expected = by_formula(ratio, given.advantages_RT[row, column].item(), options)
                assert loss[row, column].item() == pytest.approx(expected)
            else:
                assert loss[row, column].item() == 0.0


@pytest.mark.parametrize("dual_clip", [None, 1.3])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_finite_differences(seed, dual_clip):
    given = inputs(seed)

    def loss(log_probs: torch.Tensor) -> torch.Tensor:
        current = LossInputs(log_probs, given.old_log_probs_RT, given.advantages_RT, given.response_mask_RT)
        return ppo(current, PpoOptions(dual_clip=dual_clip)).loss_RT.sum()

    assert gradcheck(loss, (given.log_probs_RT,), eps=1e-7, atol=1e-6)


def test_at_the_old_policy_the_gradient_is_minus_the_advantage():
    given = inputs(spread=0.0)
    ppo(given, PpoOptions()).loss_RT.sum().backward()
    torch.testing.assert_close(given.log_probs_RT.grad, -given.advantages_RT * given.response_mask_RT)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "moves"),
    [
        (0.25, 1.0, True),
        (0.3, 1.0, False),
        (-0.3, 1.0, True),
        (-0.3, -1.0, False),
        (0.3, -1.0, True),
        (-0.2, -1.0, True),
    ],
)
def test_the_clip_stops_a_token_only_on_the_side_its_advantage_pushes_to(log_ratio, advantage, moves):
    loss, log_prob = one_token(log_ratio, advantage, clip_low=0.2, clip_high=0.3)
    loss.loss_RT.sum().backward()
    assert (log_prob.grad.item() != 0) == moves
    assert loss.sums["pg_clipfrac"].item() == (0 if moves else 1)


def test_the_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely():
    free, _ = one_token(3.0, -1.0)
    bounded, log_prob = one_token(3.0, -1.0, dual_clip=3.0)
    bounded.loss_RT.sum().backward()
    assert free.loss_RT.item() == pytest.approx(math.exp(3.0))
    assert bounded.loss_RT.item() == 3.0
    assert log_prob.grad.item() == 0.0
    assert bounded.sums["pg_clipfrac_lower"].item() == 1


def test_an_absurd_log_ratio_stays_finite():
    loss, log_prob = one_token(1000.0, -1.0)
    loss.loss_RT.sum().backward()
    assert math.isfinite(loss.loss_RT.item())
    assert math.isfinite(log_prob.grad.item())


def test_the_kl_sum_counts_sampled_tokens_only():
    given = inputs()
    expected = (given.old_log_probs_RT - given.log_probs_RT)[given.response_mask_RT].sum()
    torch.testing.assert_close(ppo(given, PpoOptions()).sums["ppo_kl"], expected.detach())


def test_what_stands_on_tokens_that_were_not_sampled_has_no_effect_not_even_nan():
    given = inputs()
    clean = ppo(given, PpoOptions()).loss_RT.sum()
    clean.backward()
    broken = given.log_probs_RT.detach().masked_fill(~given.response_mask_RT, torch.nan).requires_grad_()
    loss = ppo(
        LossInputs(broken, given.old_log_probs_RT, given.advantages_RT, given.response_mask_RT), PpoOptions()
    ).loss_RT.sum()
    loss.backward()
    assert loss == clean
    assert torch.equal(broken.grad, given.log_probs_RT.grad)
    assert (broken.grad[~given.response_mask_RT] == 0).all()
