"""One optimiser step: its size, its schedule, and when it is refused."""

import pytest
import torch
from torch import nn

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.workers.optim import Optimiser


def optimiser_and_weight(total_steps=10, **config):
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    return Optimiser(model, OptimConfig(**{"lr": 0.1, "grad_clip": 100.0, **config}), total_steps), model.weight


def learning_rates(optimiser, weight, steps):
    """The rate that each step was made with: AdamW's steps with a constant gradient are as long as its rate."""
    rates = []
    for _ in range(steps):
        before = weight.detach().clone()
        weight.grad = torch.ones_like(weight)
        optimiser.step()
        rates.append(float((before - weight.detach())[0, 0]))
    return rates


def test_the_rate_rises_to_its_peak_and_falls_to_its_final_share():
    optimiser, weight = optimiser_and_weight(total_steps=8, warmup_steps=4, final_lr_ratio=0.5)
    rates = learning_rates(optimiser, weight, 10)
    assert rates[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1], rel=1e-3)
    assert rates[4:8] == pytest.approx([0.1, 0.0875, 0.075, 0.0625], rel=1e-3)
    assert rates[8:] == pytest.approx([0.05, 0.05], rel=1e-3), "beyond the end it stays"
    assert optimiser.lr == pytest.approx(0.05)


def test_the_rate_is_constant_by_default():
    optimiser, weight = optimiser_and_weight()
    assert learning_rates(optimiser, weight, 12) == pytest.approx([0.1] * 12, rel=1e-3)


def test_a_step_tells_the_norm_before_clipping_and_uses_the_clipped_gradient():
    optimiser, weight = optimiser_and_weight(grad_clip=0.5)
    weight.grad = torch.tensor([[3.0, 4.0]])
    assert optimiser.step() == pytest.approx(5.0)
    used = optimiser.adamw.state[weight]["exp_avg"] / 0.1
    assert used.flatten().tolist() == pytest.approx([0.3, 0.4], rel=1e-4)
    assert weight.grad is None, "the gradient is cleared"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(bad):
    optimiser, weight = optimiser_and_weight(warmup_steps=4)
    learning_rates(optimiser, weight, 2)
    twin, twin_weight = optimiser_and_weight(warmup_steps=4)
    learning_rates(twin, twin_weight, 2)
    weight.grad = torch.tensor([[1.0, bad]])
    with pytest.raises(FloatingPointError, match="not finite"):
        optimiser.step()
    assert torch.equal(weight, twin_weight)
    assert weight.grad is None, "nothing of it is left for the next step"
    assert learning_rates(optimiser, weight, 3) == learning_rates(twin, twin_weight, 3)


def test_frozen_parameters_are_left_alone():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    optimiser = Optimiser(model, OptimConfig(weight_decay=0.5), 1)
    before = model[0].weight.clone()
    model(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    assert torch.equal(model[0].weight, before)


def test_its_state_goes_on_where_it_was():
    config = {"total_steps": 8, "warmup_steps": 3, "final_lr_ratio": 0.1}
    optimiser, weight = optimiser_and_weight(**config)
    learning_rates(optimiser, weight, 4)
    resumed, resumed_weight = optimiser_and_weight(**config)
    resumed_weight.data.copy_(weight.data)
    resumed.load_tensors(optimiser.tensors())
    assert learning_rates(resumed, resumed_weight, 4) == learning_rates(optimiser, weight, 4)
