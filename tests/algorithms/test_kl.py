import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from openmanus_rl.algorithms.kl import KL_ESTIMATES, apply_kl_penalty, kl_estimate
from openmanus_rl.errors import UserError


def single(log_prob: float, ref_log_prob: float, kind: str) -> float:
    pair = (torch.tensor(x, dtype=torch.float64) for x in (log_prob, ref_log_prob))
    return kl_estimate(*pair, kind).item()


@pytest.mark.parametrize(
    ("kind", "more_likely", "less_likely"),
    [
        ("k1", 0.5, -0.5),
        ("abs", 0.5, 0.5),
        ("k2", 0.125, 0.125),
        ("k3", math.exp(-0.5) - 1 + 0.5, math.exp(0.5) - 1 - 0.5),
    ],
)
def test_each_form_by_hand(kind, more_likely, less_likely):
    assert single(-1.0, -1.5, kind) == pytest.approx(more_likely)
    assert single(-1.5, -1.0, kind) == pytest.approx(less_likely)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_the_true_divergence_on_average(kind):
    policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    reference = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    exact = (policy * (policy / reference).log()).sum()
    torch.testing.assert_close((policy * kl_estimate(policy.log(), reference.log(), kind)).sum(), exact)


@given(a=st.floats(-30, 0), b=st.floats(-30, 0), kind=st.sampled_from(["abs", "k2", "k3"]))
def test_all_but_k1_are_never_negative_and_zero_for_equal_policies(a, b, kind):
    assert single(a, b, kind) >= 0
    assert single(a, a, kind) == 0


@pytest.mark.parametrize("kind", sorted(KL_ESTIMATES))
def test_the_gradient_of_each_form_is_that_of_finite_differences(kind):
    generator = torch.Generator().manual_seed(0)
    log_probs, reference = torch.randn(2, 10, dtype=torch.float64, generator=generator)
    assert gradcheck(lambda x: kl_estimate(x, reference, kind), (log_probs.requires_grad_(),), eps=1e-7, atol=1e-6)


def test_k3_of_an_absurd_difference_stays_finite():
    assert math.isfinite(single(-2000.0, 0.0, "k3"))


def test_an_unknown_form_suggests_the_right_one():
    with pytest.raises(UserError, match="Did you mean k3"):
        single(0.0, 0.0, "k33")


def test_the_penalty_is_subtracted_on_sampled_tokens_only_and_its_mean_is_over_them():
    scores = torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]])
    old = torch.tensor([[-1.0, 5.0, -2.0], [-1.0, torch.nan, 5.0]])
    reference = torch.tensor([[-2.0, 0.0, -1.0], [-4.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    rewards, mean_kl = apply_kl_penalty(scores, old, reference, mask, 0.1, "k1")
    torch.testing.assert_close(rewards, torch.tensor([[-0.1, 0.0, 1.1], [1.7, 0.0, 0.0]]))
    assert mean_kl == pytest.approx((1 - 1 + 3) / 3)


def test_the_penalty_of_a_batch_without_a_sampled_token_is_zero():
    zeros = torch.zeros(2, 3)
    rewards, mean_kl = apply_kl_penalty(zeros, zeros, zeros - 1, zeros.bool(), 0.1, "k3")
    assert torch.equal(rewards, zeros)
    assert mean_kl == 0.0


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3"])
def test_with_a_plus_the_value_stays_and_the_gradient_is_that_of_the_divergence_on_average(kind):
    logits = torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64).log()
    log_probs = logits.log_softmax(-1)
    chances = log_probs.exp()
    (exact,) = torch.autograd.grad((chances * (log_probs - reference)).sum(), logits, retain_graph=True)
    straight = kl_estimate(log_probs, reference, f"{kind}+")
    assert torch.equal(straight, kl_estimate(log_probs, reference, kind))
    (found,) = torch.autograd.grad((chances.detach() * straight).sum(), logits, retain_graph=True)
    torch.testing.assert_close(found, exact)
    if kind in ("k1", "k3"):
        (plain,) = torch.autograd.grad((chances.detach() * kl_estimate(log_probs, reference, kind)).sum(), logits)
        assert not torch.allclose(plain, exact), "without the plus it is another gradient"
