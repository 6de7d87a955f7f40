"""Which rows credit is given to, and which the KL is measured on; stand-ins answer for the workers."""

from types import SimpleNamespace

import pytest
import torch

from openmanus_rl.algorithms.kl_control import AdaptiveKL
from openmanus_rl.config.schema import ActorConfig, AlgorithmConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.trainer.credit import assign_credit
from openmanus_rl.trainer.timings import Timings

ACTOR = ActorConfig(proximal="recompute")


def rows(scores: list[float], groups: list[int]) -> DataProto:
    """An episode a row, of two sampled tokens with log-prob -1 each."""
    count = len(scores)
    return DataProto.from_dict(
        {
            "token_level_scores": torch.tensor([[0.0, score] for score in scores]),
            "response_mask": torch.ones(count, 2, dtype=torch.bool),
            "turn_index": torch.zeros(count, 2, dtype=torch.long),
            "group_index": torch.tensor(groups),
            "episode_index": torch.arange(count),
            "segment_index": torch.zeros(count, dtype=torch.long),
            "bootstrap": torch.zeros(count, dtype=torch.bool),
            "rollout_log_probs": torch.full((count, 2), -1.0),
        }
    )


def roles_that_say(old: list[float], reference: list[float] | None = None) -> SimpleNamespace:
    """An actor, and a reference, that give every token of an episode the log-prob which stands at its place."""

    def answer(log_probs: list[float]):
        return lambda batch: DataProto.from_dict(
            {"log_probs": torch.tensor(log_probs)[batch.batch["episode_index"]].unsqueeze(-1).repeat(1, 2)}
        )

    actor = SimpleNamespace(compute_log_prob=answer(old))
    return SimpleNamespace(
        enrich=lambda batch: batch, actor=actor, critic=None, reference_log_prob=answer(reference or old)
    )


def credit(batch: DataProto, roles: SimpleNamespace, control: AdaptiveKL | None = None, **algorithm):
    return assign_credit(batch, roles, AlgorithmConfig(**algorithm), ACTOR, control, Timings())


def test_an_episode_beyond_the_band_leaves_the_batch_and_its_groups_statistics():
    batch = rows([0.0, 1.0, 9.0, 0.0, 1.0], [0, 0, 0, 1, 1])
    roles = roles_that_say([-1.0, -1.0, -3.0, -1.0, -1.0])
    kept, metrics = credit(batch, roles, correction={"kind": "token", "band": 1.5})
    assert kept.batch["episode_index"].tolist() == [0, 1, 3, 4]
    assert metrics["actor/correction_rejected"] == pytest.approx(1 / 5)
    first, second = kept.batch["advantages"].view(2, 2, 2)
    assert torch.equal(first, second), "the group is that of two episodes, as the other one is"
    assert kept.batch["correction_weights"].tolist() == [[1.0, 1.0]] * 4


def test_a_group_of_which_the_band_leaves_one_episode_is_left_out_and_nothing_at_all_is_no_trouble():
    batch = rows([0.0, 1.0, 0.0, 1.0], [0, 0, 1, 1])
    kept, metrics = credit(batch, roles_that_say([-1.0, -3.0, -1.0, -1.0]), correction={"band": 1.5})
    assert kept.batch["episode_index"].tolist() == [2, 3]
    assert metrics["groups/lone"] == 0.5
    none, metrics = credit(rows([0.0, 1.0], [0, 0]), roles_that_say([-3.0, -3.0]), correction={"band": 1.5})
    assert (len(none), metrics["actor/correction_rejected"]) == (0, 1.0)


def test_the_kl_is_measured_on_all_rows_while_groups_are_judged_by_their_scores():
    batch = rows([1.0, 1.0, 0.0, 1.0], [0, 0, 1, 1])
    roles = roles_that_say([-1.0] * 4, [-1.5, -1.1, -1.0, -1.0])
    control = AdaptiveKL(0.1, target=0.1, horizon=4)
    kept, metrics = credit(batch, roles, control, kl={"where": "reward", "kind": "k1"})
    assert kept.batch["episode_index"].tolist() == [2, 3], "what the KL tells of a group of equals is not credit"
    assert metrics["groups/zero_variance"] == 0.5
    assert metrics["actor/reward_kl_penalty"] == pytest.approx((0.5 + 0.1) / 4)
    assert control.coefficient == pytest.approx(0.1 * 1.2), "four episodes, a KL above the target"
