"""Token lists to learn from, and how they lie in a forward pass: packed one after another, or padded by like length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openmanus_rl.agent.episode import Episode, Segment
from openmanus_rl.data.demonstrations import Demonstration
from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.forward import token_log_probs

_LIKE = 0.8
"""Rows side by side are at least so long, relative to the longest: on a CPU, padding costs more than a further pass."""


@dataclass(frozen=True)
class Example:
    """A conversation as tokens; `mask` is 1 on what is learnt: what the assistant says."""

    ids: list[int]
    mask: list[int]

    @property
    def learnt(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True)
class Layout:
    """Examples in one forward pass, R rows of T tokens."""

    input_ids_RT: Tensor
    position_ids_RT: Tensor
    """Counted from 0 in each example: where they start anew, attention does not look back."""
    learnt_RT: Tensor
    example_RT: Tensor
    """Which of the given examples a token belongs to; that of padding does not matter, since none of it is learnt."""


def conversation_example(demonstration: Demonstration, renderer: ChatRenderer) -> Example:
    """A conversation with its loss on the assistant's messages, but for those that say `loss=False`."""
    try:
        return Example(*renderer.conversation_ids(demonstration.messages))
    except UserError as error:
        raise UserError(f"{demonstration.item_id}: {error}") from error


def episode_examples(episode: Episode, learn_invalid: bool = False) -> list[Example]:
    """The segments of a played episode up to their last sampled token: what was sampled is learnt, token for token.

    Answers without a valid action are seen and not learnt, unless `learn_invalid` says so.
    """
    return [_segment_example(segment, learn_invalid) for segment in episode.segments if segment.turns]


def _segment_example(segment: Segment, learn_invalid: bool) -> Example:
    end = segment.turns[-1].end
    mask = [0] * end
    for turn in segment.turns:
        if learn_invalid or turn.invalid_reason is None:
            mask[turn.start : turn.end] = [1] * len(turn.token_ids)
    return Example(list(segment.ids[:end]), mask)


def layouts(examples: Sequence[Example], token_budget: int, packed: bool) -> Iterator[Layout]:
    """Passes that cover the examples once, each of at most `token_budget` tokens, or of one example that is longer."""
    by_length = sorted(range(len(examples)), key=lambda index: (-len(examples[index].ids), index))
    part: list[int] = []
    for index in by_length:
        length = len(examples[index].ids)
        if part:
            size = sum(len(examples[other].ids) for other in part) if packed else len(part) * len(examples[part[0]].ids)
            fits = size + (length if packed else len(examples[part[0]].ids)) <= token_budget
            if not fits or (not packed and length < _LIKE * len(examples[part[0]].ids)):
                yield _pack(examples, part) if packed else _pad(examples, part)
                part = []
        part.append(index)
    if part:
        yield _pack(examples, part) if packed else _pad(examples, part)


def log_prob_sums(model: PreTrainedModel, layout: Layout, count: int) -> Tensor:
    """The log-prob of what is learnt of each of `count` examples; 0 for those that are not in the pass."""
    log_probs_RT, _ = token_log_probs(model, layout.input_ids_RT, None, layout.position_ids_RT, layout.learnt_RT)
    return log_probs_RT.new_zeros(count).index_add(0, layout.example_RT.flatten(), log_probs_RT.flatten())


def _pack(examples: Sequence[Example], part: Sequence[int]) -> Layout:
    starts = [0]
    for index in part:
        starts.append(starts[-1] + len(examples[index].ids))
    positions = torch.cat([torch.arange(end - start) for start, end in pairwise(starts)])
    owners = torch.cat([torch.full((len(examples[index].ids),), index) for index in part])
    return Layout(
        torch.tensor([[token for index in part for token in examples[index].ids]]),
        positions[None],
        torch.tensor([[learnt for index in part for learnt in examples[index].mask]]).bool(),
        owners[None],
    )


def _pad(examples: Sequence[Example], part: Sequence[int]) -> Layout:
    width = len(examples[part[0]].ids)
    padding = [[0] * (width - len(examples[index].ids)) for index in part]
    ids = [examples[index].ids + zeros for index, zeros in zip(part, padding, strict=True)]
    masks = [examples[index].mask + zeros for index, zeros in zip(part, padding, strict=True)]
    shape = (len(part), width)
    return Layout(
        torch.tensor(ids),
        torch.arange(width).expand(shape),
        torch.tensor(masks).bool(),
        torch.tensor(part)[:, None].expand(shape),
    )
