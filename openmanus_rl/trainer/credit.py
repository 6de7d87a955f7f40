"""From played rows to what an update needs: rewards, old and reference log-probs, values, advantages.

Every step asks the estimator's entry what it requires; none is known here by name.
"""

import torch

from openmanus_rl.algorithms.core_algos import apply_kl_penalty, compute_advantage, credit_batch
from openmanus_rl.algorithms.correction import off_policy_correction
from openmanus_rl.algorithms.groups import groups_of_one, zero_variance_groups
from openmanus_rl.algorithms.kl_control import AdaptiveKL, FixedKL, KLController
from openmanus_rl.algorithms.registry import estimator_options, find_estimator
from openmanus_rl.config.schema import ActorConfig, AlgorithmConfig, CorrectionConfig, KLConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.trainer.metrics import batch_metrics
from openmanus_rl.trainer.roles import Roles
from openmanus_rl.trainer.timings import Timings


def kl_controller(kl: KLConfig) -> KLController:
    """The weight of the KL penalty in the reward, fixed or adaptive."""
    return FixedKL(kl.coefficient) if kl.target is None else AdaptiveKL(kl.coefficient, kl.target, kl.horizon)


def assign_credit(
    batch: DataProto,
    roles: Roles,
    algorithm: AlgorithmConfig,
    actor: ActorConfig,
    kl_control: KLController,
    timings: Timings,
) -> tuple[DataProto, dict[str, float]]:
    """The batch with `old_log_probs`, `advantages` and, with a critic, `values` and `returns`; and metrics."""
    batch = roles.enrich(batch)
    columns = batch.batch
    metrics: dict[str, float] = {}
    if actor.proximal == "recompute":
        with timings.part("old_log_prob"):
            trainer = roles.actor.compute_log_prob(batch).batch
        columns["old_log_probs"] = trainer["log_probs"]
        batch, correction_metrics = _correct(batch, algorithm.correction)
        metrics |= correction_metrics
    else:
        columns["old_log_probs"] = columns["rollout_log_probs"].clone()
    if not len(batch):
        return batch, metrics
    columns = batch.batch
    columns["token_level_rewards"] = columns["token_level_scores"].clone()
    teaching_R, group_metrics = _teaching_rows(batch, algorithm)
    metrics |= group_metrics
    if algorithm.kl.where == "reward":  # of all rows: the controller is to see the policy, not what is left to learn
        with timings.part("ref"):
            columns["ref_log_prob"] = roles.reference_log_prob(batch).batch["log_probs"]
        batch, kl_metrics = apply_kl_penalty(batch, kl_control, algorithm.kl.kind)
        metrics |= kl_metrics
    batch = batch[teaching_R]
    if not len(batch):
        return batch, metrics
    columns = batch.batch
    if algorithm.kl.where == "loss":
        with timings.part("ref"):
            columns["ref_log_prob"] = roles.reference_log_prob(batch).batch["log_probs"]
    if not algorithm.bootstrap_cut_episodes or roles.critic is None:
        columns["bootstrap"] = torch.zeros_like(columns["bootstrap"])
    if roles.critic is not None:
        with timings.part("values"):
            batch = batch.union(roles.critic.compute_values(batch))
    options = estimator_options(algorithm.estimator, algorithm.options)
    with timings.part("adv"):
        batch = compute_advantage(batch, algorithm.estimator, options)
    return batch, metrics | batch_metrics(batch)


def _correct(batch: DataProto, correction: CorrectionConfig) -> tuple[DataProto, dict[str, float]]:
    """Add `correction_weights` and leave out episodes beyond the band, if the config asks for a correction."""
    kind, cap, band = correction.kind, correction.cap, correction.band
    if kind == "none" and band is None:
        return batch, {}
    columns = batch.batch
    found = off_policy_correction(
        columns["rollout_log_probs"],
        columns["old_log_probs"],
        columns["response_mask"],
        columns["episode_index"],
        kind,
        cap,
        band,
    )
    columns["correction_weights"] = found.weights_RT
    return batch[found.kept_R], found.metrics


def _teaching_rows(batch: DataProto, algorithm: AlgorithmConfig) -> tuple[torch.Tensor, dict[str, float]]:
    """True on rows of groups that the estimator can learn from; one that compares siblings cannot from equals.

    Groups are judged by their scores, before any KL: in a group of equals, a few hundredths of KL would be all there is
    to compare, and an estimator that divides by the deviation would make them as large as success and failure.
    """
    entry = find_estimator(algorithm.estimator)
    if "group" not in entry.requires:
        return torch.ones(len(batch), dtype=torch.bool), {}
    credit = credit_batch(batch)
    groups = len(torch.unique(credit.group_index_R))
    equal, lone = zero_variance_groups(credit), groups_of_one(credit)
    drops_equal = algorithm.drop_zero_variance_groups and entry.credit == "episode"
    dropped = torch.cat([equal, lone]) if drops_equal else lone
    teaching_R = ~torch.isin(credit.group_index_R, dropped)
    return teaching_R, {"groups/zero_variance": len(equal) / groups, "groups/lone": len(lone) / groups}
