"""From the rows of an update back to the tokens of its episodes, for the record of what was trained."""

from collections.abc import Sequence

import torch

from openmanus_rl.agent.episode import Episode, Segment
from openmanus_rl.agent.records import Credit, TokenCredit
from openmanus_rl.protocol import DataProto

DIGITS = 6
"""Decimals of a recorded log-prob or advantage: it is looked at, not computed with."""


def rows_of_first(batch: DataProto, episodes: Sequence[Episode], count: int) -> DataProto:
    """The rows of `batch`, made from `episodes`, that belong to the first `count` of them."""
    samples = sum(episode.stop_reason.is_sample for episode in episodes[:count])
    return batch[batch.batch["episode_index"] < samples] if len(batch) else batch


def credit_of_tokens(batch: DataProto, episodes: Sequence[Episode]) -> Credit:
    """What `batch`, rows that were trained on, says about `episodes`, from which they were made.

    `trainer_log_probs` has the trainer's own log-probs from before the update. Rows are only read for episodes that
    somebody asks for.
    """
    samples = [episode for episode in episodes if episode.stop_reason.is_sample]
    index_of = {id(episode): index for index, episode in enumerate(samples)}
    rows: dict[int, dict[int, int]] = {}
    if len(batch):
        places = zip(batch.batch["episode_index"].tolist(), batch.batch["segment_index"].tolist(), strict=True)
        for row, (episode, segment) in enumerate(places):
            rows.setdefault(episode, {})[segment] = row

    def credit(episode: Episode) -> list[TokenCredit] | None:
        of_episode = rows.get(index_of.get(id(episode), -1))
        if of_episode is None:
            return None
        return [_of_segment(batch, of_episode[number], part) for number, part in enumerate(episode.segments)]

    return credit


def _of_segment(batch: DataProto, row: int, segment: Segment) -> TokenCredit:
    columns = batch.batch
    sampled = [position for turn in segment.trained for position in range(turn.start, turn.end)]
    if [segment.ids[position] for position in sampled] != batch.non_tensor_batch["sampled_ids"][row]:
        raise AssertionError(f"row {row} was not made from the segment whose record it should complete")

    def on_tokens(column: torch.Tensor) -> list[float | None]:
        values: list[float | None] = [None] * len(segment.ids)
        for position, value in zip(sampled, column[row][columns["response_mask"][row].bool()].tolist(), strict=True):
            values[position] = round(value, DIGITS)
        return values

    return TokenCredit(on_tokens(columns["trainer_log_probs"]), on_tokens(columns["advantages"]))
