"""Mistakes that others made, each a test: numbered as in the list of slips.

Slip 12 is in tests/agent/test_openmanus_agent.py; more of 2, 6 and 10 in tests/rewards, of 7 in tests/workers, and of
8 in tests/trainer/test_every_config_field_is_read.py.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from credit_cases import Played, Token, play, to_batch

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.openmanus import episode_seed
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.algorithms.core_algos import compute_advantage
from openmanus_rl.algorithms.gae import GaeOptions, gae
from openmanus_rl.algorithms.kl import apply_kl_penalty
from openmanus_rl.algorithms.losses import Denominators, LossInputs, aggregate
from openmanus_rl.algorithms.registry import (
    ESTIMATORS,
    LOSSES,
    estimator_options,
    find_estimator,
    find_loss,
    loss_options,
)
from openmanus_rl.algorithms.turn_gae import TurnGaeOptions, turn_gae
from openmanus_rl.algorithms.value_loss import value_loss
from openmanus_rl.config.load import load_config
from openmanus_rl.config.schema import AlgorithmConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import RewardManager

GROUPED = [
    name
    for name, entry in ESTIMATORS.items()
    if "group" in entry.requires and entry.function.__module__.startswith("openmanus_rl.")
]
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


def advantages(name: str, batch: Any, **options: Any) -> torch.Tensor:
    return find_estimator(name)(batch, estimator_options(name, options)).advantages_RT


def played(
    group: int, sample: int, rewards: list[float], stop_reason: StopReason = StopReason.DONE, prompt: int = 3
) -> Episode:
    """An episode of one token a turn, with an observation of one token after each."""
    turns = [
        Turn(prompt + 2 * index, [40 + index], [-0.5], [0], "Action: up", "up", None, "s", reward=reward)
        for index, reward in enumerate(rewards)
    ]
    ids = [1] * prompt + [token for turn in turns for token in (*turn.token_ids, 9)]
    return Episode(Task("maze", f"maze_{group}"), group, sample, 0, [Segment(ids, prompt, turns)], stop_reason)


@pytest.mark.parametrize("loss", ["cispo", "gspo", "ppo", "reinforce"])
@pytest.mark.parametrize("mode", MODES)
def test_slip_3_a_loss_over_an_all_masked_batch_is_zero_with_a_zero_gradient(mode, loss):
    log_probs = torch.randn(2, 3, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    denominators = Denominators.of(nothing, torch.tensor([0, 1]), length_norm=8)
    inputs = LossInputs(log_probs, torch.randn(2, 3), torch.randn(2, 3), nothing)
    token_loss = find_loss(loss)(inputs, loss_options(loss, {})).loss_RT
    policy = aggregate(token_loss, nothing, mode, denominators)
    critic = aggregate(value_loss(log_probs, *torch.randn(2, 2, 3), nothing, 0.5).loss_RT, nothing, mode, denominators)
    (policy + critic).backward()
    assert policy.item() == critic.item() == 0.0
    assert log_probs.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name", GROUPED)
def test_slip_4_a_group_of_one_is_an_error_that_names_the_group(name):
    batch = to_batch([Played(0, 41, [[Token(0, 1.0)]]), Played(1, 42, [[Token(0, 1.0)]]), Played(2, 42, [[Token(0)]])])
    with pytest.raises(UserError, match=f"group 41 has one episode: {name} compares siblings"):
        advantages(name, batch)


@pytest.mark.parametrize("name", ["process", "gigpo"])
def test_slip_5_a_turn_is_not_compared_only_with_turns_of_its_own_number(name):
    """One episode goes on and wins; its siblings stop at once and lose. To go on must be credited.

    Among second turns it is alone: a mean over those would give it nothing, and its first turn all.
    """
    winner = Played(0, 0, [[Token(0, state=0), Token(-1), Token(1, reward=1.0, state=1)]])
    losers = [Played(name, 0, [[Token(0, state=0)]]) for name in (1, 2)]
    answer = advantages(name, to_batch([winner, *losers]), gamma=1.0)
    assert answer[0, 2] > 0.5
    assert (answer[1:, 0] < 0).all()
    # The number itself means nothing: the same episodes with a turn of thought before them all.
    late = [Played(e.name, 0, [[replace(t, turn=t.turn + 5 * (t.turn >= 0)) for t in e.segments[0]]]) for e in losers]
    assert torch.equal(advantages(name, to_batch([winner, *late]), gamma=1.0), answer)


def test_slip_6_a_failed_episode_is_no_sample_of_reward_0_and_the_group_counts_what_was_played():
    group = [played(0, 0, [1.0]), played(0, 1, [0.0]), played(0, 2, [0.0], StopReason.ENV_FAILURE)]
    with pytest.raises(ValueError, match="a failed episode is not a sample"):
        episodes_to_rows(group, pad_token_id=0)
    rows = episodes_to_rows([episode for episode in group if episode.stop_reason.is_sample], pad_token_id=0)
    rows.batch["token_level_rewards"] = rows.batch["token_level_scores"]
    assert compute_advantage(rows, "drgrpo").batch["advantages"][:, 0].tolist() == [0.5, -0.5]


def test_slip_7_a_batch_that_would_train_on_what_was_not_sampled_is_stopped():
    rows = episodes_to_rows([played(0, 0, [0.0, 1.0])], pad_token_id=0)
    assert_only_sampled_tokens_train(rows)
    assert rows.batch["response_mask"].tolist() == [[True, False, True, False]]
    for wrong in (torch.tensor([[True, True, True, False]]), torch.tensor([[False, True, False, True]])):
        broken = episodes_to_rows([played(0, 0, [0.0, 1.0])], pad_token_id=0)
        broken.batch["response_mask"] = wrong
        with pytest.raises(AssertionError, match="not the 2 sampled ones"):
            assert_only_sampled_tokens_train(broken)
    retokenised = episodes_to_rows([played(0, 0, [0.0, 1.0])], pad_token_id=0)
    retokenised.batch["input_ids"][0, 3] = 77
    with pytest.raises(AssertionError, match="token ids are wrong"):
        assert_only_sampled_tokens_train(retokenised)


@pytest.mark.parametrize("key", ["top_p", "top_k"])
def test_slip_7_episodes_cannot_be_sampled_from_a_cut_distribution_whose_log_probs_are_of_the_whole(key):
    with pytest.raises(UserError, match=rf"rollout\.{key} is not a key"):
        load_config(None, [f"rollout.{key}=0.5"])


def other_value(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return 1.05 if value is None else 0.4 * value + 0.1


def options_of(registry: Any) -> list[tuple[str, str]]:
    return [
        (name, option)
        for name, entry in registry.items()
        if entry.function.__module__.startswith("openmanus_rl.")
        for option in entry.options.model_fields
    ]


@pytest.mark.parametrize(("name", "option"), options_of(ESTIMATORS))
def test_slip_8_every_option_of_every_estimator_changes_what_comes_out(name, option):
    batch, default = to_batch(play(2)), estimator_options(name, {})
    changed = advantages(name, batch, **{option: other_value(getattr(default, option))})
    assert not torch.equal(changed, advantages(name, batch))


@pytest.mark.parametrize(("name", "option"), options_of(LOSSES))
def test_slip_8_every_option_of_every_loss_changes_what_comes_out(name, option):
    dice = torch.Generator().manual_seed(0)
    columns = torch.randn(3, 20, 9, dtype=torch.float64, generator=dice)
    inputs = LossInputs(*columns, torch.ones(20, 9, dtype=torch.bool))
    default = loss_options(name, {})
    changed = loss_options(name, {option: other_value(getattr(default, option))})
    assert not torch.equal(find_loss(name)(inputs, changed).loss_RT, find_loss(name)(inputs, default).loss_RT)


def test_slip_8_lambda_is_spelled_one_way():
    with pytest.raises(UserError, match=r"algorithm\.options\.lambda is not an option"):
        estimator_options("gae", {"lambda": 0.9})


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


@pytest.mark.parametrize("allocation", ["per_turn", "last_token", "uniform_positive", "discounted"])
def test_slip_10_what_the_world_gave_arrives_on_the_rows_whole(allocation):
    manager = RewardManager(AlgorithmConfig(reward_allocation=allocation), max_episode_tokens=100)
    episodes = [played(0, 0, [-0.25, 1.0]), played(0, 1, [0.0, 0.5, 0.25]), played(0, 2, [-1.0])]
    rows = episodes_to_rows(episodes, 0, manager)
    assert rows.batch["token_level_scores"].sum(-1).tolist() == pytest.approx([0.75, 0.75, -1.0])
    assert [episode.scores["score"] for episode in episodes] == [0.75, 0.75, -1.0]


def test_slip_10_a_score_function_of_ones_own_is_told_what_the_world_gave(tmp_path):
    path = tmp_path / "told_reward.py"
    path.write_text("def told(solution_str, ground_truth, **kwargs):\n    return 2 * kwargs['episode_return']\n")
    manager = RewardManager(AlgorithmConfig(reward_score_fn=f"{path}:told"), max_episode_tokens=100)
    rows = episodes_to_rows([played(0, 0, [-0.25, 1.0]), played(0, 1, [-1.0])], 0, manager)
    assert rows.batch["token_level_scores"].sum(-1).tolist() == [1.5, -2.0]


def test_slip_11_an_episode_cannot_be_its_own_sibling():
    batch = to_batch([Played(0, 0, [[Token(0, 1.0)]]), Played(1, 0, [[Token(0)]])])
    twice = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
    twice = {name: torch.cat([column, column[:1]]) for name, column in twice.items() if column is not None}
    with pytest.raises(ValueError, match="in the batch twice"):
        type(batch)(**twice)
    seeds = {episode_seed(0, step, "maze_1", sample) for step in (1, 2) for sample in range(8)}
    assert len(seeds) == 16, "siblings are played from seeds of their own"


def test_slip_13_the_mean_over_unequal_micro_batches_is_over_tokens_not_over_micro_batches():
    loss, mask = (
        torch.tensor([[1.0, 1.0, 1.0, 1.0], [9.0, 0.0, 0.0, 0.0]]),
        torch.tensor([[True] * 4, [True] + [False] * 3]),
    )
    denominators = Denominators.of(mask, torch.tensor([0, 1]))
    parts = [aggregate(loss[[r]], mask[[r]], "token-mean", denominators.select(torch.tensor([r]))) for r in (0, 1)]
    assert sum(parts).item() == pytest.approx(13 / 5)


@pytest.mark.parametrize("name", GROUPED)
def test_slip_14_an_episode_of_several_rows_counts_once_in_its_group(name):
    whole = [Token(0, state=0), Token(1, state=1), Token(2, reward=1.0, state=1)]
    losers = [Played(1, 0, [[Token(0, state=0)]]), Played(2, 0, [[Token(0, state=1)]])]
    one_row = to_batch([Played(0, 0, [whole]), *losers])
    three_rows = to_batch([Played(0, 0, [[token] for token in whole]), *losers])
    assert one_row.episode_returns().tolist() == three_rows.episode_returns().tolist() == [1.0, 0.0, 0.0]
    one, three = (advantages(name, batch) for batch in (one_row, three_rows))
    assert one[0].tolist() == pytest.approx(three[:3, 0].tolist())
    assert one[1:, 0].tolist() == pytest.approx(three[3:, 0].tolist())
