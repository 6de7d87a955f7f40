"""What an estimator sees and what it gives back.

Dimension suffixes: `_E` episodes, `_G` groups, `_K` turns, `_N` sampled tokens, `_R` rows, `_T` tokens of a response.
A row is one segment; an episode is one row or several. Its sampled tokens, in order of segments and positions, are one
stream: observations between them take no part.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.masks import require_bool
from openmanus_rl.algorithms.ragged import Ragged, discounted_sums
from openmanus_rl.errors import UserError


@dataclass(frozen=True)
class Advantages:
    """An estimator's answer, zero on every token that was not sampled."""

    advantages_RT: Tensor
    returns_RT: Tensor | None = None
    """What the critic should have said; None where there is no critic."""


@dataclass(frozen=True)
class CreditBatch:
    """The rows of one training step, as far as credit is concerned."""

    token_level_rewards_RT: Tensor
    response_mask_RT: Tensor
    """True on sampled tokens only."""
    turn_index_RT: Tensor
    """Which turn of its episode a sampled token belongs to; -1 elsewhere."""
    group_index_R: Tensor
    episode_index_R: Tensor
    segment_index_R: Tensor
    bootstrap_R: Tensor
    """True where the episode was cut short: its end is worth the critic's value, not 0."""
    values_RT: Tensor | None = None
    """The critic's value before each token is sampled."""
    final_values_R: Tensor | None = None
    """The critic's value after the row's last token."""
    state_index_RT: Tensor | None = None
    """A number for the state of the world in which a sampled token's turn was taken; -1 where it is not known."""
    greedy_return_R: Tensor | None = None
    """The return of the greedy episode on the row's task."""

    def __post_init__(self) -> None:
        _check_columns(self)
        _check_tokens(self)
        _check_episodes(self)

    @property
    def num_episodes(self) -> int:
        return len(self.group_index_E)

    @cached_property
    def episode_R(self) -> Tensor:
        """Each row's episode, numbered from 0 in order of `episode_index_R`."""
        return distinct(self.episode_index_R).place

    @cached_property
    def group_index_E(self) -> Tensor:
        """Each episode's group, by the name it has in `group_index_R`."""
        return self.group_index_R[self._last_row_E]

    def episode_returns(self) -> Tensor:
        """The sum of each episode's rewards over all its rows.

        In float64, where sums of float32 rewards do not depend on their order: equal episodes have equal returns.
        """
        returns_R = self.token_level_rewards_RT.double().sum(-1)
        return returns_R.new_zeros(self.num_episodes).index_add(0, self.episode_R, returns_R)

    def spread(self, advantage_E: Tensor) -> Advantages:
        """The episode's advantage on each of its sampled tokens."""
        advantage_R = advantage_E[self.episode_R].to(self.token_level_rewards_RT.dtype)
        return Advantages(advantage_R.unsqueeze(-1) * self.response_mask_RT)

    def sampled(self, column_RT: Tensor) -> Tensor:
        """The values of a column at the sampled tokens, episode after episode, in the order of sampling."""
        return column_RT.flatten().index_select(0, self._token_N)

    def rows(self, values_N: Tensor) -> Tensor:
        """The inverse of `sampled`, zero on every other token."""
        flat = values_N.new_zeros(self.response_mask_RT.numel())
        return flat.scatter_(0, self._token_N, values_N).view_as(self.response_mask_RT)

    @cached_property
    def episodes(self) -> Ragged:
        """Sampled tokens by episode."""
        line_N = self.episode_R[self._row_order].repeat_interleave(self._row_tokens_R[self._row_order])
        lengths_E = self._row_tokens_R.new_zeros(self.num_episodes).index_add(0, self.episode_R, self._row_tokens_R)
        return Ragged(line_N, self.num_episodes, lengths_E)

    @cached_property
    def turns(self) -> Ragged:
        """Sampled tokens by turn; turns of all episodes are numbered on."""
        turn_N = self.sampled(self.turn_index_RT)
        new_turn_N = self.episodes.first_N.clone()
        new_turn_N[1:] |= turn_N[1:] != turn_N[:-1]
        return Ragged(new_turn_N.cumsum(0) - 1, int(new_turn_N.sum()))

    @cached_property
    def turn_episodes(self) -> Ragged:
        """Turns by episode."""
        return Ragged(self.episodes.line_N[self.turns.first_N], self.num_episodes)

    def turn_rewards(self) -> Tensor:
        """The sum of each turn's rewards, in float64."""
        rewards_N = self.sampled(self.token_level_rewards_RT).double()
        return rewards_N.new_zeros(self.turns.lines).index_add(0, self.turns.line_N, rewards_N)

    def turn_returns(self, gamma: float) -> Tensor:
        """What was earned from each turn on, discounted by turns, in float64."""
        turns = self.turn_episodes
        return turns.flat(discounted_sums(turns.pad(self.turn_rewards()), gamma))

    def turn_states(self) -> Tensor:
        """The number of the state in which each turn was taken; -1 where it is not known."""
        if self.state_index_RT is None:
            raise UserError("the batch has no states: this estimator compares turns from the same state of the world.")
        return self.sampled(self.state_index_RT)[self.turns.first_N]

    def spread_turns(self, advantage_K: Tensor) -> Advantages:
        """The turn's advantage on each of its sampled tokens."""
        return Advantages(self.rows(advantage_K[self.turns.line_N].to(self.token_level_rewards_RT.dtype)))

    def greedy_returns(self) -> Tensor:
        """For each episode, the return of the greedy episode on its task."""
        if self.greedy_return_R is None:
            raise UserError("the batch has no greedy returns: this estimator needs a greedy episode of each task.")
        return self.greedy_return_R[self._last_row_E].double()

    def critic_values(self) -> Tensor:
        """The critic's value before each sampled token."""
        if self.values_RT is None:
            raise UserError("the batch has no values: this estimator needs a critic.", "Choose one without: grpo.")
        return self.sampled(self.values_RT)

    def end_values_E(self) -> Tensor:
        """What an episode is worth after its last token: 0, or the critic's value where the episode was cut short."""
        cut_E = self.bootstrap_R[self._last_row_E]
        if self.final_values_R is None:
            if cut_E.any():
                raise ValueError("episodes that were cut short need final_values, the critic's value at their end")
            return self.token_level_rewards_RT.new_zeros(self.num_episodes)
        return self.final_values_R[self._last_row_E] * cut_E

    @cached_property
    def _row_order(self) -> Tensor:
        """Rows by episode, then by segment."""
        by_segment = torch.argsort(self.segment_index_R, stable=True)
        return by_segment[torch.argsort(self.episode_R[by_segment], stable=True)]

    @cached_property
    def _last_row_E(self) -> Tensor:
        ordered_R = self.episode_R[self._row_order]
        return self._row_order[Ragged(ordered_R, int(ordered_R.max()) + 1 if len(ordered_R) else 0).last_N]

    @cached_property
    def _token_N(self) -> Tensor:
        """Where the sampled tokens are in a flattened column."""
        rows, width = self.response_mask_RT.shape
        in_place_R = torch.arange(rows, device=self.response_mask_RT.device)
        if torch.equal(self._row_order, in_place_R):
            return self.response_mask_RT.flatten().nonzero().squeeze(1)
        ordered_N = self.response_mask_RT[self._row_order].flatten().nonzero().squeeze(1)
        moved_R = (self._row_order - in_place_R) * width
        return ordered_N + moved_R.repeat_interleave(self._row_tokens_R[self._row_order])

    @cached_property
    def _row_tokens_R(self) -> Tensor:
        """Sampled tokens of each row."""
        return self.response_mask_RT.sum(-1)


def _check_columns(batch: CreditBatch) -> None:
    require_bool(batch.response_mask_RT)
    shape = batch.response_mask_RT.shape
    for name in ("token_level_rewards_RT", "turn_index_RT", "values_RT", "state_index_RT"):
        column = getattr(batch, name)
        if column is not None and column.shape != shape:
            raise ValueError(f"{name[:-3]} has shape {tuple(column.shape)}, response_mask has {tuple(shape)}")
    for name in (
        "group_index_R",
        "episode_index_R",
        "segment_index_R",
        "bootstrap_R",
        "final_values_R",
        "greedy_return_R",
    ):
        column = getattr(batch, name)
        if column is not None and column.shape != shape[:1]:
            raise ValueError(f"{name[:-2]} has shape {tuple(column.shape)}, the batch has {shape[0]} rows")


def _check_tokens(batch: CreditBatch) -> None:
    """No reward where nothing was sampled: it would be lost. Every sampled token has its turn."""
    lost_RT = (batch.token_level_rewards_RT != 0) > batch.response_mask_RT
    if lost_RT.any():
        row, position = lost_RT.nonzero()[0].tolist()
        raise ValueError(f"row {row} has a reward on response token {position}, which was not sampled")
    turn_N = batch.sampled(batch.turn_index_RT)
    falls_N = turn_N[1:] < turn_N[:-1]
    falls_N[batch.episodes.ends_F[:-1]] = False  # from one episode to the next
    if (turn_N[batch.episodes.first_N] < 0).any() or falls_N.any():
        raise ValueError("turn_index must be 0 or more on sampled tokens, and never fall within an episode")


def _check_episodes(batch: CreditBatch) -> None:
    """A segment is there once, and an episode has one group."""
    episode_R, segment_R = batch.episode_R[batch._row_order], batch.segment_index_R[batch._row_order]
    if ((episode_R[1:] == episode_R[:-1]) & (segment_R[1:] == segment_R[:-1])).any():
        raise ValueError("a segment of an episode is in the batch twice")
    if not torch.equal(batch.group_index_E[batch.episode_R], batch.group_index_R):
        raise ValueError("rows of one episode are in different groups")
