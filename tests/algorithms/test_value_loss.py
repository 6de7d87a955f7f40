import pytest
import torch
from torch.autograd import gradcheck

from openmanus_rl.algorithms.value_loss import value_loss


def one_value(value: float, old: float, target: float, clip: float = 0.5) -> tuple[float, float, int]:
    tensors = [torch.tensor([[x]], dtype=torch.float64) for x in (value, old, target)]
    tensors[0].requires_grad_()
    answer = value_loss(*tensors, torch.ones(1, 1, dtype=torch.bool), clip)
    answer.loss_RT.sum().backward()
    return answer.loss_RT.item(), tensors[0].grad.item(), int(answer.sums["vf_clipfrac"])


def test_near_the_old_value_the_loss_is_half_the_squared_error():
    assert one_value(value=0.4, old=0.0, target=1.0) == (pytest.approx(0.18), pytest.approx(-0.6), 0)


def test_a_value_that_ran_ahead_towards_its_target_gets_no_gradient_to_go_on():
    assert one_value(value=0.9, old=0.0, target=1.0) == (pytest.approx(0.125), 0.0, 1)


def test_a_value_that_ran_away_from_its_target_is_called_back():
    assert one_value(value=-0.9, old=0.0, target=1.0) == (pytest.approx(1.805), pytest.approx(-1.9), 0)


def test_the_gradient_is_that_of_finite_differences_and_zero_on_tokens_not_sampled():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 4, 6, dtype=torch.float64, generator=generator)
    mask = torch.rand(4, 6, generator=generator) < 0.6
    values.requires_grad_()
    assert gradcheck(lambda v: value_loss(v, old, returns, mask, 0.5).loss_RT.sum(), (values,), eps=1e-7, atol=1e-6)
    broken = returns.masked_fill(~mask, torch.nan)
    value_loss(values, old, broken, mask, 0.5).loss_RT.sum().backward()
    assert (values.grad[~mask] == 0).all()
    assert values.grad[mask].isfinite().all()
