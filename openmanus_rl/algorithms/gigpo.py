"""GiGPO: an episode is worth how it compares with its siblings, and a turn how it compares with others from its state.

Feng et al. 2025 ("Group-in-Group Policy Optimization"). To the episode's advantage over its group (as in `grpo`)
comes a turn's advantage over all turns of the group that stood in the same state of the world, the anchor: what was
earned from there on, discounted by turns. A state that was met once says nothing about the action and adds 0.
"""

import torch
from pydantic import Field
from torch import Tensor

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class GigpoOptions(Config):
    """Options of `gigpo`."""

    step_weight: float = Field(1.0, ge=0)
    """Weight of a turn's advantage beside its episode's."""
    gamma: float = Field(0.95, ge=0, le=1)
    """Discount from one turn to the next in what was earned from a state on."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviations."""
    normalise_std: bool = True
    """Divide by the standard deviation, of the group and of the turns from a state."""


@estimator("gigpo", requires={"group", "state_key"}, options=GigpoOptions)
def gigpo(batch: CreditBatch, options: GigpoOptions) -> Advantages:
    require_siblings(batch, "gigpo")
    episode_E = _compared(batch.episode_returns(), batch.group_index_E, options)
    turn_K = _compared(batch.turn_returns(options.gamma), _anchors(batch), options)
    return batch.spread_turns(episode_E[batch.turn_episodes.line_N] + options.step_weight * turn_K)


def _compared(returns: Tensor, index: Tensor, options: GigpoOptions) -> Tensor:
    """How far each return is from the mean of those with the same index; 0 where there is one."""
    mean, std = group_mean_std(returns, index)
    return (returns - mean) / (std + options.epsilon if options.normalise_std else torch.ones_like(std))


def _anchors(batch: CreditBatch) -> Tensor:
    """One number for the turns of a group that stood in the same state; a turn without a known state has its own."""
    state_K = batch.turn_states()
    group_K = distinct(batch.group_index_E).place[batch.turn_episodes.line_N]
    states = distinct(state_K)
    anchor_K = group_K * len(states.names) + states.place
    alone_K = -1 - torch.arange(len(state_K), device=state_K.device)
    return torch.where(state_K < 0, alone_K, anchor_K)
