"""The two steps of the loop that are the algorithm, on a `DataProto`: the KL in the reward, and the advantage.

Columns read: `token_level_scores` or `token_level_rewards`, `response_mask`, `turn_index` (a number a response token);
`group_index, episode_index, segment_index, bootstrap` (a number a row); with a critic also `values`, and
`final_values` (a number a row). Estimators that ask for them read `state_index` (a number a response token) and
`greedy_return` (a number a row).
"""

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from openmanus_rl.algorithms import kl
from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.kl_control import KLController
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.own import require_floats
from openmanus_rl.algorithms.registry import EstimatorEntry, estimator_options, find_estimator
from openmanus_rl.config.base import Config
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto


def compute_advantage(batch: DataProto, estimator: str, options: Config | Mapping[str, Any] | None = None) -> DataProto:
    """Add the column `advantages`, and `returns` where there is a critic to teach. `batch` itself is changed."""
    entry = find_estimator(estimator)
    typed = options if isinstance(options, Config) else estimator_options(estimator, options or {})
    credit = credit_batch(batch)
    if "critic" in entry.requires and credit.values_RT is None:
        raise UserError(f"the estimator {estimator} needs a critic: the batch has no column values.")
    if "state_key" in entry.requires and not (credit.turn_states() >= 0).any():
        raise UserError(
            f"the estimator {estimator} compares turns from the same state, and the world tells none (no state_key).",
            "Give the world a state_key, or choose another estimator.",
        )
    answer = _checked(entry(credit, typed), credit, entry)
    columns = _columns(batch)
    columns["advantages"] = answer.advantages_RT
    if answer.returns_RT is not None:
        columns["returns"] = answer.returns_RT
    return batch


def _checked(answer: Advantages, credit: CreditBatch, entry: EstimatorEntry) -> Advantages:
    """The answer of an estimator, which may be a user's own."""
    who, mask_RT = f"the estimator {entry.name}", credit.response_mask_RT
    if not isinstance(answer, Advantages):
        raise UserError(f"{who} gave a {type(answer).__name__}.", "It must return Advantages(…).")
    columns = {"advantages": answer.advantages_RT}
    if answer.returns_RT is not None:
        columns["returns"] = answer.returns_RT
    elif "critic" in entry.requires:
        raise UserError(f"{who} requires a critic and gives no returns to teach it.", "Return Advantages(…, returns).")
    for name, column in columns.items():
        require_floats(column, f"{who} gave {name}", mask_RT)
        if not column.isfinite().all():
            raise UserError(f"{who} gave {name} that are not finite.")
        if column.masked_fill(mask_RT, 0).any():
            raise UserError(
                f"{who} gave {name} to tokens that nobody sampled.", "Multiply them by batch.response_mask_RT."
            )
    return answer


def apply_kl_penalty(batch: DataProto, controller: KLController, kind: str) -> tuple[DataProto, dict[str, float]]:
    """Add the column `token_level_rewards`: the scores minus the KL to the reference; the controller learns the KL.

    Reads `old_log_probs` and `ref_log_prob` too. `batch` itself is changed; the second answer are metrics.
    """
    coefficient = controller.coefficient
    rewards, mean_kl = kl.apply_kl_penalty(
        _column(batch, "token_level_scores"),
        _column(batch, "old_log_probs"),
        _column(batch, "ref_log_prob"),
        _column(batch, "response_mask").bool(),
        coefficient,
        kind,
    )
    _columns(batch)["token_level_rewards"] = rewards
    controller.update(mean_kl, episodes=len(distinct(_column(batch, "episode_index")).names))
    return batch, {"actor/reward_kl_penalty": mean_kl, "actor/reward_kl_penalty_coeff": coefficient}


def credit_batch(batch: DataProto) -> CreditBatch:
    """The columns that estimators see, checked."""
    values, final_values = _optional_column(batch, "values"), _optional_column(batch, "final_values")
    greedy_return = _optional_column(batch, "greedy_return")
    return CreditBatch(
        token_level_rewards_RT=_column(batch, "token_level_rewards").float(),
        response_mask_RT=_column(batch, "response_mask").bool(),
        turn_index_RT=_column(batch, "turn_index"),
        group_index_R=_column(batch, "group_index"),
        episode_index_R=_column(batch, "episode_index"),
        segment_index_R=_column(batch, "segment_index"),
        bootstrap_R=_column(batch, "bootstrap").bool(),
        values_RT=None if values is None else values.float(),
        final_values_R=None if final_values is None else final_values.float(),
        state_index_RT=_optional_column(batch, "state_index"),
        greedy_return_R=None if greedy_return is None else greedy_return.float(),
    )


def _column(batch: DataProto, name: str) -> Tensor:
    column = _optional_column(batch, name)
    if column is None:
        raise UserError(
            f"the batch has no column {name}.", f"It has: {', '.join(sorted(map(str, _columns(batch).keys())))}."
        )
    return column


def _optional_column(batch: DataProto, name: str) -> Tensor | None:
    column: Tensor | None = _columns(batch).get(name, None)
    return column


def _columns(batch: DataProto) -> TensorDict:
    if batch.batch is None:
        raise UserError("the batch has no tensors.")
    columns: TensorDict = batch.batch
    return columns
