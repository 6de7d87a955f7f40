"""Estimators that compare episodes, each against its formula written out, and what they do not depend on."""

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from credit_cases import Played, Token, assert_streams_equal, by_episode, play, to_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.algorithms.registry import ESTIMATORS, estimator_options, find_estimator
from openmanus_rl.errors import UserError

SEEDS = st.integers(0, 10_000)
Streams = dict[int, list[float]]

ALL = ["drgrpo", "gigpo", "grpo", "process", "reinforce_pp", "reinforce_pp_baseline", "remax", "rloo"]
WITHOUT_A_CRITIC = {name for name, entry in ESTIMATORS.items() if "critic" not in entry.requires}
WITH_A_CRITIC = ["gae", "turn_gae"]
GROUPED = ["drgrpo", "gigpo", "grpo", "process", "reinforce_pp_baseline", "rloo"]


def siblings(episodes: list[Played], episode: Played) -> list[Played]:
    return [other for other in episodes if other.group == episode.group]


def over_tokens(episodes: list[Played], values: dict[int, float]) -> Streams:
    return {episode.name: [values[episode.name]] * len(episode.sampled) for episode in episodes}


def whitened(streams: Streams) -> Streams:
    everything = [value for stream in streams.values() for value in stream]
    mean, deviation = statistics.fmean(everything), (statistics.pvariance(everything) + 1e-8) ** 0.5
    return {name: [(value - mean) / deviation for value in stream] for name, stream in streams.items()}


def normalised(value: float, others: list[float], epsilon: float = 1e-6) -> float:
    std = statistics.stdev(others) if len(others) > 1 else 0.0
    return (value - statistics.fmean(others)) / (std + epsilon)


def by_turns(episodes: list[Played], values: dict[int, list[float]]) -> Streams:
    return {
        episode.name: [
            value for turn, value in zip(episode.turns, values[episode.name], strict=True) for _ in range(len(turn))
        ]
        for episode in episodes
    }


def drgrpo(episodes: list[Played]) -> Streams:
    means = {e.name: statistics.fmean(o.total for o in siblings(episodes, e)) for e in episodes}
    return over_tokens(episodes, {e.name: e.total - means[e.name] for e in episodes})


def rloo(episodes: list[Played]) -> Streams:
    others = {e.name: [o.total for o in siblings(episodes, e) if o is not e] for e in episodes}
    return over_tokens(episodes, {e.name: e.total - statistics.fmean(others[e.name]) for e in episodes})


def remax(episodes: list[Played]) -> Streams:
    return over_tokens(episodes, {e.name: e.total - e.greedy for e in episodes})


def reinforce_pp(episodes: list[Played], gamma: float = 0.9) -> Streams:
    streams = {}
    for episode in episodes:
        rewards = [token.reward for token in episode.sampled]
        streams[episode.name] = [
            sum(gamma ** (later - now) * rewards[later] for later in range(now, len(rewards)))
            for now in range(len(rewards))
        ]
    return whitened(streams)


def reinforce_pp_baseline(episodes: list[Played]) -> Streams:
    return whitened(drgrpo(episodes))


def grpo(episodes: list[Played]) -> Streams:
    return over_tokens(
        episodes, {e.name: normalised(e.total, [o.total for o in siblings(episodes, e)]) for e in episodes}
    )


def process(episodes: list[Played], gamma: float = 0.9) -> Streams:
    values = {}
    for episode in episodes:
        all_turns = [value for other in siblings(episodes, episode) for value in other.turn_returns(gamma)]
        values[episode.name] = [normalised(value, all_turns) for value in episode.turn_returns(gamma)]
    return by_turns(episodes, values)


def gigpo(episodes: list[Played], gamma: float = 0.9, step_weight: float = 0.5) -> Streams:
    values = {}
    for episode in episodes:
        group = siblings(episodes, episode)
        whole = normalised(episode.total, [other.total for other in group])
        values[episode.name] = []
        for turn, value in zip(episode.turns, episode.turn_returns(gamma), strict=True):
            anchored = [
                other_value
                for other in group
                for other_turn, other_value in zip(other.turns, other.turn_returns(gamma), strict=True)
                if other_turn[0].state == turn[0].state
            ]
            step = normalised(value, anchored) if turn[0].state >= 0 else 0.0
            values[episode.name].append(whole + step_weight * step)
    return by_turns(episodes, values)


FORMULAS: dict[str, tuple[Callable[[list[Played]], Streams], dict[str, float]]] = {
    "drgrpo": (drgrpo, {}),
    "gigpo": (gigpo, {"gamma": 0.9, "step_weight": 0.5}),
    "grpo": (grpo, {}),
    "process": (process, {"gamma": 0.9}),
    "reinforce_pp": (reinforce_pp, {"gamma": 0.9}),
    "reinforce_pp_baseline": (reinforce_pp_baseline, {}),
    "remax": (remax, {}),
    "rloo": (rloo, {}),
}


def advantages(name: str, batch, **options: float) -> torch.Tensor:
    return find_estimator(name)(batch, estimator_options(name, options)).advantages_RT


def test_every_estimator_without_a_critic_is_proven_here():
    built_in = {name for name in WITHOUT_A_CRITIC if ESTIMATORS[name].function.__module__.startswith("openmanus_rl.")}
    assert built_in == set(FORMULAS) == set(ALL)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25)
@given(seed=SEEDS, siblings_count=st.integers(2, 5))
def test_the_estimator_is_its_formula_on_sampled_tokens_and_zero_elsewhere(name, seed, siblings_count):
    formula, options = FORMULAS[name]
    episodes = play(seed, siblings=siblings_count)
    batch = to_batch(episodes, shuffle=seed, critic=False)
    answer = advantages(name, batch, **options)
    assert_streams_equal(by_episode(batch, answer), formula(episodes))
    assert (answer[~batch.response_mask_RT] == 0).all()


@pytest.mark.parametrize("name", [*ALL, *WITH_A_CRITIC])
@settings(max_examples=10)
@given(seed=SEEDS, padding=st.integers(0, 30), names=st.permutations([3, 50, 700]))
def test_row_order_padding_and_the_groups_names_and_order_change_nothing(name, seed, padding, names):
    episodes = play(seed)
    renamed = dict(zip(sorted({episode.group for episode in episodes}), names, strict=True))
    moved = [replace(episode, group=renamed[episode.group]) for episode in reversed(episodes)]
    plain_batch, moved_batch = to_batch(episodes), to_batch(moved, shuffle=seed + 1, padding=padding)
    assert_streams_equal(
        by_episode(moved_batch, advantages(name, moved_batch)), by_episode(plain_batch, advantages(name, plain_batch))
    )


def outcome(name: int, group: int, reward: float, turns: int = 1) -> Played:
    return Played(name, group, [[*(Token(turn, state=0) for turn in range(turns - 1)), Token(turns, reward, state=1)]])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("drgrpo", {}),
        ("gigpo", {"gamma": 1.0}),
        ("grpo", {}),
        ("process", {"gamma": 1.0}),
        ("reinforce_pp_baseline", {}),
        ("rloo", {}),
    ],
)
@settings(max_examples=15)
@given(rewards=st.lists(st.integers(-8, 8), min_size=2, max_size=6), shift=st.integers(-100, 100))
def test_a_constant_added_to_every_return_of_a_group_changes_nothing(name, options, rewards, shift):
    def group(added: int):
        return to_batch([outcome(place, 0, reward + added, 1 + place % 3) for place, reward in enumerate(rewards)])

    torch.testing.assert_close(
        advantages(name, group(shift), **options), advantages(name, group(0), **options), rtol=1e-6, atol=1e-6
    )


@settings(max_examples=15)
@given(shift=st.integers(-100, 100))
def test_a_constant_added_to_the_whole_batch_changes_nothing_where_the_batch_is_the_baseline(shift):
    plain, moved = (
        to_batch([outcome(place, place, reward + added, 1 + place % 3) for place, reward in enumerate([1, 0, 0, 5])])
        for added in (0, shift)
    )
    torch.testing.assert_close(
        advantages("reinforce_pp", moved), advantages("reinforce_pp", plain), rtol=1e-6, atol=1e-6
    )


@settings(max_examples=15)
@given(seed=SEEDS, shift=st.integers(-100, 100))
def test_a_constant_added_to_sampled_and_greedy_returns_alike_changes_nothing_for_remax(seed, shift):
    episodes = [outcome(place, 0, reward) for place, reward in enumerate([0.0, 1.0, seed / 10_000])]
    moved = [outcome(e.name, 0, e.total + shift) for e in episodes]
    for episode in moved:
        episode.greedy = float(shift)
    torch.testing.assert_close(
        advantages("remax", to_batch(moved)), advantages("remax", to_batch(episodes)), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_that_all_did_the_same_gets_zero(name):
    batch = to_batch([outcome(0, 0, 0.1), outcome(1, 0, 0.1), outcome(2, 0, 0.1)])
    assert advantages(name, batch).abs().max() < 1e-9


def test_rloo_is_unbiased_where_grpos_mean_includes_the_episode_itself():
    pair = to_batch([outcome(0, 0, 1.0), outcome(1, 0, 0.0)])
    assert advantages("rloo", pair)[:, 0].tolist() == [1.0, -1.0]
    assert advantages("drgrpo", pair)[:, 0].tolist() == [0.5, -0.5]


def test_gigpo_by_hand_on_two_episodes_that_meet_in_a_state():
    """Two mazes walks from the same start A. The first goes A → B → goal (reward 1), the second A → B → A → pit (0).

    With gamma 1/2 the turns earn from there on: first 1/2, 1; second 0, 0, 0. State A was stood in by turns that earned
    1/2, 0, 0 (mean 1/6), state B by 1, 0 (mean 1/2). Episodes: 1, 0 (mean 1/2). Without deviations:
    """
    a, b = 0, 1
    first = Played(0, 0, [[Token(0, state=a), Token(-1), Token(1, reward=1.0, state=b)]])
    second = Played(1, 0, [[Token(0, state=a), Token(1, state=b), Token(-1), Token(2, state=a)]])
    elsewhere = [Played(2, 9, [[Token(0, 7.0, state=a)]]), Played(3, 9, [[Token(0, 7.0, state=a)]])]
    answer = advantages("gigpo", to_batch([first, second, *elsewhere]), gamma=0.5, normalise_std=False)
    assert answer[0].tolist() == pytest.approx([1 / 2 + 1 / 3, 0.0, 1 / 2 + 1 / 2, 0.0])
    assert answer[1].tolist() == pytest.approx([-1 / 2 - 1 / 6, -1 / 2 - 1 / 2, 0.0, -1 / 2 - 1 / 6])
    assert answer[2:].abs().max() == 0, "the same state of another task is another anchor"


def test_gigpo_without_steps_is_grpo_and_a_state_met_once_adds_nothing():
    batch = to_batch(play(4))
    torch.testing.assert_close(advantages("gigpo", batch, step_weight=0.0), advantages("grpo", batch))
    lonely = [outcome(0, 0, 1.0), outcome(1, 0, 0.0)]
    for number, episode in enumerate(lonely):
        for token in episode.sampled:
            token.state = number
    batch = to_batch(lonely)
    torch.testing.assert_close(advantages("gigpo", batch), advantages("grpo", batch))


def test_gigpo_groups_many_turns_without_a_loop_over_them():
    """16,384 turns of 1,024 episodes: what a loop over pairs could not do within a test."""
    dice = torch.Generator().manual_seed(0)
    episodes, turns = 1024, 16
    states = torch.randint(0, 40, (episodes, turns), generator=dice)
    batch = to_batch([outcome(0, 0, 1.0), outcome(1, 0, 0.0)])
    big = type(batch)(
        token_level_rewards_RT=torch.rand(episodes, turns, generator=dice),
        response_mask_RT=torch.ones(episodes, turns, dtype=torch.bool),
        turn_index_RT=torch.arange(turns).repeat(episodes, 1),
        group_index_R=torch.arange(episodes) // 8,
        episode_index_R=torch.arange(episodes),
        segment_index_R=torch.zeros(episodes, dtype=torch.long),
        bootstrap_R=torch.zeros(episodes, dtype=torch.bool),
        state_index_RT=states,
    )
    only_steps = advantages("gigpo", big, gamma=0.5, normalise_std=False) - advantages("drgrpo", big)
    for group in (0, 77):
        rows = slice(8 * group, 8 * group + 8)
        for state in states[rows].unique():
            assert only_steps[rows][states[rows] == state].sum().abs() < 1e-4


def test_the_requirements_say_what_is_missing():
    bare = to_batch(play(1), critic=False)
    without = type(bare)(**{**vars_of(bare), "state_index_RT": None, "greedy_return_R": None})
    with pytest.raises(UserError, match="no states"):
        advantages("gigpo", without)
    with pytest.raises(UserError, match="no greedy returns"):
        advantages("remax", without)


def vars_of(batch) -> dict[str, object]:
    return {name: getattr(batch, name) for name in batch.__dataclass_fields__}
