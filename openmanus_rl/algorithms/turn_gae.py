"""Turn-level GAE: an action is worth how its turn went, a token how the rest of its turn went.

GAE at two levels (Zhou et al. 2024, ArCHer, separate turns from tokens likewise). Between turns, a turn is one step:
its value is the critic's before its first token, its reward the sum over its tokens. Inside a turn, GAE over tokens
has each token's own reward, and on the last one what the turn leads to: its target, advantage plus value, less what it
earned itself. Long thoughts thus do not discount what an action leads to, and no token answers for a reward before it.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.gae import temporal_difference, whiten
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class TurnGaeOptions(Config):
    """Options of `turn_gae`."""

    gamma: float = Field(0.95, ge=0, le=1)
    """Discount from one turn to the next; below 1, a shorter way to the same reward is better."""
    lam: float = Field(0.9, ge=0, le=1)
    """Between turns: 0 trusts the critic one turn ahead, 1 only what was really earned."""
    gamma_token: float = Field(1.0, ge=0, le=1)
    """Discount from one token of a turn to the next."""
    lam_token: float = Field(1.0, ge=0, le=1)
    """Inside a turn: 0 trusts the critic one token ahead, 1 only the turn's target."""
    whiten: bool = True
    """Shift and scale advantages to mean 0 and standard deviation 1 over the sampled tokens of the step."""


@estimator("turn_gae", requires={"critic"}, options=TurnGaeOptions)
def turn_gae(batch: CreditBatch, options: TurnGaeOptions) -> Advantages:
    rewards_N = batch.sampled(batch.token_level_rewards_RT)
    values_N = batch.critic_values()
    turns = batch.turns

    reward_K = rewards_N.new_zeros(turns.lines).index_add(0, turns.line_N, rewards_N)
    value_K = values_N[turns.first_N]
    advantage_K = temporal_difference(
        reward_K, value_K, batch.turn_episodes, batch.end_values_E(), options.gamma, options.lam
    )

    earned_N = rewards_N.clone()
    earned_before_K = reward_K - rewards_N[turns.last_N]
    earned_N[turns.last_N] = advantage_K + value_K - earned_before_K
    nothing_after_K = torch.zeros_like(value_K)
    advantages_N = temporal_difference(
        earned_N, values_N, turns, nothing_after_K, options.gamma_token, options.lam_token
    )
    shown_N = whiten(advantages_N) if options.whiten else advantages_N
    return Advantages(batch.rows(shown_N), batch.rows(advantages_N + values_N))
