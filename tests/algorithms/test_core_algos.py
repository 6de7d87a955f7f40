import pytest
import torch
from credit_cases import play, to_batch

from openmanus_rl.algorithms.core_algos import apply_kl_penalty, compute_advantage, credit_batch
from openmanus_rl.algorithms.gae import GaeOptions, gae
from openmanus_rl.algorithms.groups import zero_variance_groups
from openmanus_rl.algorithms.grpo import GrpoOptions, grpo
from openmanus_rl.algorithms.kl_control import AdaptiveKL, FixedKL
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto


def rows(seed: int = 0, critic: bool = True) -> DataProto:
    batch = to_batch(play(seed), shuffle=seed)
    columns = {
        "token_level_scores": batch.token_level_rewards_RT.float(),
        "token_level_rewards": batch.token_level_rewards_RT.float(),
        "response_mask": batch.response_mask_RT.long(),
        "turn_index": batch.turn_index_RT,
        "group_index": batch.group_index_R,
        "episode_index": batch.episode_index_R,
        "segment_index": batch.segment_index_R,
        "bootstrap": batch.bootstrap_R,
    }
    if critic:
        columns |= {"values": batch.values_RT.float(), "final_values": batch.final_values_R.float()}
    return DataProto.from_dict(columns)


def test_compute_advantage_adds_advantages_and_the_critics_targets():
    data = compute_advantage(rows(), "gae", {"gamma": 0.9})
    expected = gae(credit_batch(rows()), GaeOptions(gamma=0.9))
    assert torch.equal(data.batch["advantages"], expected.advantages_RT)
    assert torch.equal(data.batch["returns"], expected.returns_RT)


def test_an_estimator_without_a_critic_adds_no_targets():
    data = compute_advantage(rows(critic=False), "grpo")
    assert torch.equal(data.batch["advantages"], grpo(credit_batch(rows()), GrpoOptions()).advantages_RT)
    assert "returns" not in data.batch


def test_typed_options_are_taken_as_they_are():
    by_dict = compute_advantage(rows(), "grpo", {"normalise_std": False})
    by_type = compute_advantage(rows(), "grpo", GrpoOptions(normalise_std=False))
    assert torch.equal(by_dict.batch["advantages"], by_type.batch["advantages"])


def test_a_missing_column_is_named():
    data = rows()
    del data.batch["group_index"]
    with pytest.raises(UserError, match="no column group_index"):
        compute_advantage(data, "grpo")


def test_an_estimator_with_a_critic_refuses_a_batch_without_values():
    with pytest.raises(UserError, match="gae needs a critic"):
        compute_advantage(rows(critic=False), "gae")


def test_groups_without_variance_can_be_dropped_by_rows():
    data = rows()
    flat = data.batch["group_index"] == data.batch["group_index"][0]
    data.batch["token_level_rewards"][flat] = 0.0
    useless = zero_variance_groups(credit_batch(data))
    assert torch.equal(torch.isin(data.batch["group_index"], useless), flat)


def test_the_kl_penalty_makes_rewards_of_scores_and_teaches_the_controller():
    data = rows()
    mask = data.batch["response_mask"].bool()
    data.batch["old_log_probs"] = torch.zeros(mask.shape)
    data.batch["ref_log_prob"] = torch.full(mask.shape, -1.0)
    controller = AdaptiveKL(0.5, target=0.1, horizon=9)
    data, metrics = apply_kl_penalty(data, controller, "k1")
    torch.testing.assert_close(data.batch["token_level_rewards"], data.batch["token_level_scores"] - 0.5 * mask)
    assert metrics == {"actor/reward_kl_penalty": 1.0, "actor/reward_kl_penalty_coeff": 0.5}
    assert controller.coefficient == pytest.approx(0.5 * 1.2)


def test_the_kl_penalty_leaves_no_reward_where_nothing_was_sampled():
    data = rows()
    data.batch["old_log_probs"] = torch.randn(data.batch["response_mask"].shape)
    data.batch["ref_log_prob"] = torch.randn(data.batch["response_mask"].shape)
    data, _ = apply_kl_penalty(data, FixedKL(0.1), "k3")
    compute_advantage(data, "gae")
