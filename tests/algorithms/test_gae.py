import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from credit_cases import Played, Token, assert_streams_equal, by_episode, play, recursive_gae, to_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.algorithms.gae import GaeOptions, gae, whiten
from openmanus_rl.algorithms.ragged import discounted_sums
from openmanus_rl.errors import UserError

SEEDS = st.integers(0, 10_000)
FRACTIONS = st.sampled_from([0.0, 0.5, 0.95, 1.0])


@settings(max_examples=60)
@given(seed=SEEDS, gamma=FRACTIONS, lam=FRACTIONS)
def test_gae_is_the_recursion_over_each_episodes_sampled_tokens_across_observations_and_segments(seed, gamma, lam):
    episodes = play(seed)
    batch = to_batch(episodes, shuffle=seed)
    answer = gae(batch, GaeOptions(gamma=gamma, lam=lam, whiten=False))
    expected, targets = {}, {}
    for episode in episodes:
        values = [token.value for token in episode.sampled]
        rewards = [token.reward for token in episode.sampled]
        expected[episode.name] = recursive_gae(rewards, values, episode.end_value, gamma, lam)
        targets[episode.name] = [a + v for a, v in zip(expected[episode.name], values, strict=True)]
    assert_streams_equal(by_episode(batch, answer.advantages_RT), expected)
    assert_streams_equal(by_episode(batch, answer.returns_RT), targets)
    assert (answer.advantages_RT[~batch.response_mask_RT] == 0).all()
    assert (answer.returns_RT[~batch.response_mask_RT] == 0).all()


@settings(max_examples=30)
@given(seed=SEEDS, padding=st.integers(0, 90))
def test_gae_depends_on_neither_row_order_nor_padding(seed, padding):
    episodes = play(seed)
    plain, moved = to_batch(episodes), to_batch(episodes, shuffle=seed + 1, padding=padding)
    options = GaeOptions(gamma=0.9, lam=0.8)
    assert_streams_equal(
        by_episode(moved, gae(moved, options).advantages_RT), by_episode(plain, gae(plain, options).advantages_RT)
    )


def test_an_episode_cut_short_ends_with_the_critics_value_and_a_finished_one_with_zero():
    def one_token(cut_short):
        return to_batch([Played(0, 0, [[Token(0, reward=1.0, value=0.25)]], cut_short, final_value=4.0)])

    options = GaeOptions(gamma=0.5, whiten=False)
    assert gae(one_token(True), options).advantages_RT.item() == 1.0 + 0.5 * 4.0 - 0.25
    assert gae(one_token(False), options).advantages_RT.item() == 1.0 - 0.25


def test_only_the_last_segments_final_value_ends_an_episode():
    batch = to_batch([Played(0, 0, [[Token(0)], [Token(1)]], cut_short=True, final_value=1.0)])
    batch = replace(batch, final_values_R=torch.tensor([100.0, 1.0], dtype=torch.float64))
    assert gae(batch, GaeOptions(lam=1.0, whiten=False)).advantages_RT.tolist() == [[1.0], [1.0]]


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_sampled_tokens_while_returns_stay():
    batch = to_batch(play(7), padding=5)
    raw, shown = gae(batch, GaeOptions(whiten=False)), gae(batch, GaeOptions())
    sampled = shown.advantages_RT[batch.response_mask_RT]
    assert sampled.mean().abs() < 1e-9
    assert (sampled.std(correction=0) - 1).abs() < 1e-6
    assert torch.equal(shown.returns_RT, raw.returns_RT)


@pytest.mark.parametrize(("count", "value"), [(0, 0.0), (5, 3.0), (1000, 0.1), (3333, 0.7)])
def test_whitening_what_does_not_differ_gives_zeros(count, value):
    assert whiten(torch.full((count,), value)).tolist() == [0.0] * count


def test_whitening_does_not_blow_up_what_differs_by_rounding_only():
    rounded = torch.full((1000,), 0.1) + 1e-8 * torch.arange(1000).remainder(2)
    assert len(rounded.unique()) == 2
    assert whiten(rounded).abs().max() < 1e-3


def test_advantages_carry_no_gradient_to_the_critic():
    batch = to_batch(play(1))
    batch.values_RT.requires_grad_()
    answer = gae(batch, GaeOptions())
    assert not answer.advantages_RT.requires_grad
    assert not answer.returns_RT.requires_grad


def test_gae_without_values_says_that_it_needs_a_critic():
    with pytest.raises(UserError, match="needs a critic"):
        gae(to_batch(play(1), critic=False), GaeOptions())


def test_an_episode_without_a_sampled_token_gets_nothing_and_disturbs_nobody():
    lone = Played(1, 0, [[Token(0, 1.0, 0.5), Token(0, 0.0, 0.5)]])
    empty = Played(0, 0, [[Token(-1)]], cut_short=True, final_value=9.0)
    options = GaeOptions(whiten=False)
    alone, together = to_batch([lone]), to_batch([empty, lone])
    assert torch.equal(gae(together, options).advantages_RT[1], gae(alone, options).advantages_RT[0])
    assert gae(to_batch([empty]), options).advantages_RT.tolist() == [[0.0]]


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 128, 1000, 64 * 64 + 3])
@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_discounted_sums_equal_a_loop_for_any_length(length, decay):
    values = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    expected, later = torch.zeros_like(values), torch.zeros(3, dtype=torch.float64)
    for step in reversed(range(length)):
        later = values[:, step] + decay * later
        expected[:, step] = later
    torch.testing.assert_close(discounted_sums(values, decay), expected, rtol=1e-10, atol=1e-10)


def test_the_bench_of_gae_runs(capsys):
    path = Path(__file__).parents[2] / "bench" / "gae.py"
    spec = importlib.util.spec_from_file_location("bench_gae", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    threads = torch.get_num_threads()
    bench.ROWS, bench.WIDTH, bench.ROUNDS = 6, 300, 1
    bench.main()
    torch.set_num_threads(threads)
    loop, ours, _ = capsys.readouterr().out.splitlines()
    assert loop.startswith("loop over 300 columns")
    assert float(ours.partition("error ")[2].split()[0]) < 1e-5
