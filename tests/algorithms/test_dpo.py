"""DPO's loss against its formula and against finite differences."""

import math

import pytest
import torch

from openmanus_rl.algorithms.dpo import dpo_loss

CASES = [(-3.0, -5.0, -4.0, -4.5), (-60.0, -2.0, -1.0, -40.0), (-2.0, -2.0, -2.0, -2.0), (0.0, -400.0, -1.0, -1.0)]


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
def test_the_loss_is_the_formulas(beta):
    chosen, rejected, reference_chosen, reference_rejected = torch.tensor(CASES, dtype=torch.float64).unbind(1)
    found = dpo_loss(chosen, rejected, reference_chosen, reference_rejected, beta)
    for (c, r, rc, rr), loss, margin in zip(CASES, found.loss_P.tolist(), found.margin_P.tolist(), strict=True):
        expected = beta * (math.log(math.exp(c - rc)) - math.log(math.exp(r - rr)))
        assert margin == pytest.approx(expected)
        assert loss == pytest.approx(math.log1p(math.exp(-expected)))


def test_a_policy_that_has_not_moved_has_the_loss_of_a_coin():
    same = torch.tensor([-7.0, -1.0])
    assert dpo_loss(same, same - 3, same, same - 3, 0.1).loss_P.tolist() == pytest.approx([math.log(2)] * 2)


def test_the_gradient_is_that_of_finite_differences():
    inputs = [column.clone().requires_grad_(True) for column in torch.tensor(CASES[:3], dtype=torch.float64).unbind(1)]
    assert torch.autograd.gradcheck(lambda *columns: dpo_loss(*columns, 0.3).loss_P, inputs)
