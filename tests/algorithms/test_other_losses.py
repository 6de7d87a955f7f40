"""GSPO, CISPO and REINFORCE: against their formulas, and their gradients against finite differences."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from openmanus_rl.algorithms.loss_cispo import CispoOptions, cispo
from openmanus_rl.algorithms.loss_gspo import GspoOptions, gspo
from openmanus_rl.algorithms.loss_ppo import PpoOptions, ppo
from openmanus_rl.algorithms.loss_reinforce import ReinforceOptions, reinforce
from openmanus_rl.algorithms.losses import LossInputs
from openmanus_rl.algorithms.registry import LOSSES, find_loss, loss_options

SHAPE = (3, 6)
NAMES = ["cispo", "gspo", "ppo", "reinforce"]


def inputs(seed: int = 0, spread: float = 0.5, equal_advantages: bool = False) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)
    old, step, advantages = torch.randn(3, *SHAPE, dtype=torch.float64, generator=generator)
    if equal_advantages:
        advantages = advantages[:, :1].expand(SHAPE).clone()
    mask = torch.rand(SHAPE, generator=generator) < 0.7
    return LossInputs((old + spread * step).requires_grad_(), old, advantages, mask)


def gradient(name: str, given: LossInputs, **options: float) -> torch.Tensor:
    fresh = replace(given, log_probs_RT=given.log_probs_RT.detach().requires_grad_())
    find_loss(name)(fresh, loss_options(name, options)).loss_RT.sum().backward()
    return fresh.log_probs_RT.grad


def sequence_objective(given: LossInputs, log_probs: torch.Tensor, options: GspoOptions) -> torch.Tensor:
    """GSPO's own objective, a ratio a sequence, times the sequence's length; nothing in it is held fixed."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(SHAPE[0]):
        mask = given.response_mask_RT[row]
        ratio = (log_probs[row] - given.old_log_probs_RT[row])[mask].mean().exp()
        advantage = given.advantages_RT[row, 0]
        held = ratio.clamp(1 - options.clip_low, 1 + options.clip_high)
        total = total - mask.sum() * torch.minimum(ratio * advantage, held * advantage)
    return total


def test_the_built_in_losses_are_these():
    assert {name for name in LOSSES if LOSSES[name].function.__module__.startswith("openmanus_rl.")} == set(NAMES)


@pytest.mark.parametrize("clips", [{"clip_low": 0.9, "clip_high": 9.0}, {"clip_low": 0.05, "clip_high": 0.05}])
@pytest.mark.parametrize("seed", range(4))
def test_gspo_with_one_advantage_a_row_is_the_papers_objective_and_has_its_gradient(seed, clips):
    given, options = inputs(seed, equal_advantages=True), GspoOptions(**clips)
    assert gradcheck(lambda x: sequence_objective(given, x, options), (given.log_probs_RT,), eps=1e-7, atol=1e-6)
    expected = sequence_objective(given, given.log_probs_RT, options)
    torch.testing.assert_close(gspo(given, options).loss_RT.sum(), expected)
    (whole,) = torch.autograd.grad(expected, given.log_probs_RT)
    torch.testing.assert_close(gradient("gspo", given, **clips), whole)


def test_gspo_keeps_each_tokens_own_advantage():
    given = inputs(spread=0.0)
    torch.testing.assert_close(gradient("gspo", given), -given.advantages_RT * given.response_mask_RT)


@pytest.mark.parametrize("seed", range(3))
def test_cispo_weights_every_token_with_a_bounded_ratio_that_has_no_gradient(seed):
    given, options = inputs(seed, spread=1.0), CispoOptions(clip_low=0.3, clip_high=0.4)
    ratio = (given.log_probs_RT - given.old_log_probs_RT).exp().detach()
    weights = ratio.clamp(0.7, 1.4)

    def fixed(log_probs: torch.Tensor) -> torch.Tensor:
        return -(weights * given.advantages_RT * log_probs)[given.response_mask_RT].sum()

    assert gradcheck(fixed, (given.log_probs_RT,), eps=1e-7, atol=1e-6)
    torch.testing.assert_close(cispo(given, options).loss_RT.sum(), fixed(given.log_probs_RT))
    found = gradient("cispo", given, clip_low=0.3, clip_high=0.4)
    torch.testing.assert_close(found, -weights * given.advantages_RT * given.response_mask_RT)
    clipped = ((ratio != weights) & given.response_mask_RT).sum()
    assert cispo(given, options).sums["pg_clipfrac"] == clipped > 0
    assert (found[(ratio != weights) & given.response_mask_RT] != 0).all(), "a clipped token still learns"


@pytest.mark.parametrize("seed", range(3))
def test_reinforce_is_minus_advantage_times_log_prob(seed):
    given = inputs(seed)
    loss = reinforce(given, ReinforceOptions()).loss_RT
    torch.testing.assert_close(loss, -given.advantages_RT * given.log_probs_RT * given.response_mask_RT)

    def total(log_probs: torch.Tensor) -> torch.Tensor:
        return reinforce(replace(given, log_probs_RT=log_probs), ReinforceOptions()).loss_RT.sum()

    assert gradcheck(total, (given.log_probs_RT,), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_at_the_old_policy_every_loss_has_the_policy_gradient(name):
    given = inputs(spread=0.0)
    torch.testing.assert_close(gradient(name, given), -given.advantages_RT * given.response_mask_RT)


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_on_tokens_that_were_not_sampled_has_no_effect_not_even_nan(name):
    given = inputs()
    broken = replace(
        given,
        log_probs_RT=given.log_probs_RT.detach().masked_fill(~given.response_mask_RT, torch.nan),
        advantages_RT=given.advantages_RT.masked_fill(~given.response_mask_RT, torch.inf),
    )
    assert torch.equal(gradient(name, broken), gradient(name, given))


@pytest.mark.parametrize("name", NAMES)
def test_an_absurd_ratio_stays_finite(name):
    one = torch.ones(1, 1, dtype=torch.float64)
    for size in (-1000.0, 1000.0):
        given = LossInputs(size * one, 0 * one, -one, one.bool())
        assert math.isfinite(find_loss(name)(given, loss_options(name, {})).loss_RT.item())
        assert gradient(name, given).isfinite().all()


def test_a_loss_does_not_change_with_padding():
    given = inputs()
    for function, options in ((gspo, GspoOptions()), (cispo, CispoOptions()), (ppo, PpoOptions())):
        padded = LossInputs(
            *(
                torch.nn.functional.pad(column.detach(), (0, 5), value=float("nan"))
                for column in (given.log_probs_RT, given.old_log_probs_RT, given.advantages_RT)
            ),
            torch.nn.functional.pad(given.response_mask_RT, (0, 5)),
        )
        assert torch.equal(function(padded, options).loss_RT[:, : SHAPE[1]], function(given, options).loss_RT)
