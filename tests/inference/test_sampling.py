"""Drawing tokens: against brute force, and independent of neighbours."""

import numpy as np
import pytest
import torch

from openmanus_rl.inference.base import SamplingParams
from openmanus_rl.inference.sampling import Sampler, uniforms

CPU = torch.device("cpu")
LOGITS = torch.tensor([1.5, -0.3, 0.2, 2.1, 0.0, -2.0, 1.5, 0.7])


def sample(params: list[SamplingParams], logits_RV: torch.Tensor, seeds: list[int], drawn: int = 0):
    return Sampler(params, seeds, [drawn] * len(seeds), CPU)(logits_RV)


def expected_distribution(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Temperature, then the k best, then the fewest of those that reach top_p: token by token, in plain Python."""
    probs = torch.softmax(logits.double() / params.temperature, dim=-1).tolist()
    order = sorted(range(len(probs)), key=lambda token: -probs[token])
    order = order[: params.top_k or len(order)]
    total = sum(probs[token] for token in order)
    kept, mass = [], 0.0
    for token in order:
        if params.top_p == 1 or mass < params.top_p * total:
            kept.append(token)
            mass += probs[token]
    return torch.tensor([probs[token] / mass if token in kept else 0.0 for token in range(len(probs))])


TRUNCATIONS = [
    SamplingParams(1),
    SamplingParams(1, temperature=0.5),
    SamplingParams(1, temperature=2.0, top_k=3),
    SamplingParams(1, top_p=0.6),
    SamplingParams(1, temperature=1.3, top_k=5, top_p=0.7),
    SamplingParams(1, top_k=1),
    SamplingParams(1, top_p=1e-6),
]


@pytest.mark.parametrize("params", TRUNCATIONS, ids=str)
def test_tokens_are_drawn_from_the_truncated_distribution_and_carry_its_log_prob(params):
    draws = 20_000
    tokens, log_probs = sample([params] * draws, LOGITS.expand(draws, -1), list(range(draws)))
    expected = expected_distribution(LOGITS, params)
    torch.testing.assert_close(log_probs, expected[tokens].log(), atol=1e-5, rtol=0)
    counts = torch.bincount(tokens, minlength=len(LOGITS)).double()
    possible = expected > 0
    assert counts[~possible].sum() == 0
    expectation = expected[possible].double() * draws
    chi_square = ((counts[possible] - expectation) ** 2 / expectation).sum().item()
    assert chi_square < 30, counts  # 7 degrees of freedom: exceeded by chance once in 10,000


def test_greedy_takes_the_best_token_with_log_prob_zero_also_beside_sampling_rows():
    greedy, sampling = SamplingParams(1, temperature=0), SamplingParams(1)
    tokens, log_probs = sample([greedy], LOGITS[None], [0])
    assert (tokens.item(), log_probs.item()) == (3, 0.0)
    tokens, log_probs = sample([sampling, greedy], LOGITS.expand(2, -1), [5, 5])
    assert (tokens[1].item(), log_probs[1].item()) == (3, 0.0)
    assert log_probs[0] < 0


def test_what_a_row_draws_does_not_depend_on_the_parameters_of_other_rows():
    rows = 200
    logits = torch.randn(rows, 50, generator=torch.Generator().manual_seed(0))
    plain = SamplingParams(1)
    alone, _ = sample([plain] * rows, logits, list(range(rows)))
    mixed = [TRUNCATIONS[row % len(TRUNCATIONS)] if row % 2 else plain for row in range(rows)]
    mixed[1] = SamplingParams(1, temperature=0)
    together, _ = sample(mixed, logits, list(range(rows)))
    assert together[::2].tolist() == alone[::2].tolist()


def test_a_sampler_continues_a_request_where_another_stopped():
    logits = torch.zeros(1, 1000)
    whole = Sampler([SamplingParams(9)], [7], [0], CPU)
    expected = [whole(logits)[0].item() for _ in range(9)]
    resumed = Sampler([SamplingParams(9)], [7], [4], CPU)
    assert [resumed(logits)[0].item() for _ in range(5)] == expected[4:]


def test_random_numbers_are_uniform_and_unrelated_across_seeds_and_indices():
    count = 1 << 16
    many, zero = np.arange(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    for numbers in (uniforms(many, zero), uniforms(zero, many)):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        buckets = np.bincount((numbers * 64).astype(int), minlength=64)
        assert ((buckets - count / 64) ** 2 / (count / 64)).sum() < 125  # 63 degrees of freedom
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_logits_that_are_not_finite_show_in_the_log_prob():
    broken = LOGITS.clone()
    broken[2] = float("nan")
    for params in (SamplingParams(1), SamplingParams(1, temperature=0)):
        _, log_probs = sample([params], broken[None], [0])
        assert not torch.isfinite(log_probs).any()
