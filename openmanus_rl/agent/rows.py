"""Episodes to rows: each segment becomes one row of tensors, with the columns agent-RL users know.

`prompts` are padded on the left, `responses` on the right; `response_mask` is 1 on sampled tokens only.
`state_index` numbers the states of the world in which turns were taken: equal keys have equal numbers.
"""

from collections.abc import Sequence

import numpy as np
import torch

from openmanus_rl.agent.episode import Episode, Segment
from openmanus_rl.agent.rewards import TokenRewards, turn_rewards
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto


def episodes_to_rows(episodes: Sequence[Episode], pad_token_id: int, rewards: TokenRewards = turn_rewards) -> DataProto:
    """All segments of `episodes`, which must be samples, as one `DataProto`."""
    failed = [episode for episode in episodes if not episode.stop_reason.is_sample]
    if failed:
        raise ValueError(f"a failed episode is not a sample: {failed[0].task.item_id} ended by {failed[0].stop_reason}")
    if chosen := [episode.task.item_id for episode in episodes if episode.chosen]:
        raise ValueError(f"the turns of {chosen[0]} were chosen among several: they are no sample of the policy")
    if text_only := [one for one in episodes if any(turn.token_ids and not turn.log_probs for turn in one.turns)]:
        raise UserError(
            f"{text_only[0].task.item_id} was played with a model that gives text, no tokens with log-probs: "
            "it cannot be trained on.",
            "Train on tokens of an engine (rollout.engine=embedded or vllm), or fine-tune on the text "
            "(openmanus-rl eval --endpoint URL --demonstrations FILE, then openmanus-rl sft --data FILE).",
        )
    rows = [
        (index, number, episode, segment, segment_rewards)
        for index, episode in enumerate(episodes)
        for number, (segment, segment_rewards) in enumerate(zip(episode.segments, rewards(episode), strict=True))
    ]
    prompt_width = max(segment.prompt_length for _, _, _, segment, _ in rows)
    response_width = max(len(segment.ids) - segment.prompt_length for _, _, _, segment, _ in rows)
    width = prompt_width + response_width
    input_ids = np.full((len(rows), width), pad_token_id, dtype=np.int64)
    attention = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), response_width), dtype=bool)
    turn_index = np.full((len(rows), response_width), -1, dtype=np.int64)
    state_index = np.full((len(rows), response_width), -1, dtype=np.int64)
    states: dict[str, int] = {}
    log_probs = np.zeros((len(rows), response_width), dtype=np.float32)
    scores = np.zeros((len(rows), response_width), dtype=np.float32)
    for row, (_, number, episode, segment, segment_rewards) in enumerate(rows):
        start = prompt_width - segment.prompt_length
        input_ids[row, start : start + len(segment.ids)] = segment.ids
        attention[row, start : start + len(segment.ids)] = 1
        first_turn = sum(len(earlier.turns) for earlier in episode.segments[:number])
        last_turn = first_turn + len(segment.turns) - 1
        for turn_number, turn in enumerate(segment.trained, start=first_turn):
            span = slice(turn.start - segment.prompt_length, turn.end - segment.prompt_length)
            mask[row, span] = True
            turn_index[row, span] = min(turn_number, last_turn)  # a summary belongs to the turn before it
            log_probs[row, span] = turn.log_probs
            if turn.state_key is not None:
                state_index[row, span] = states.setdefault(turn.state_key, len(states))
        for position, reward in segment_rewards:
            column = position - segment.prompt_length
            if not (0 <= column < response_width and mask[row, column]):
                raise ValueError(f"a reward falls on token {position} of {episode.task.item_id}, which was not sampled")
            scores[row, column] += reward
    attention_mask = torch.from_numpy(attention)
    ids = torch.from_numpy(input_ids)
    return DataProto.from_dict(
        tensors={
            "prompts": ids[:, :prompt_width].clone(),
            "responses": ids[:, prompt_width:].clone(),
            "input_ids": ids,
            "attention_mask": attention_mask,
            "position_ids": (attention_mask.cumsum(-1) - 1).clamp(min=0),
            "response_mask": torch.from_numpy(mask),
            "rollout_log_probs": torch.from_numpy(log_probs),
            "token_level_scores": torch.from_numpy(scores),
            "turn_index": torch.from_numpy(turn_index),
            "state_index": torch.from_numpy(state_index),
            "group_index": torch.tensor([episode.group for _, _, episode, _, _ in rows]),
            "episode_index": torch.tensor([index for index, _, _, _, _ in rows]),
            "segment_index": torch.tensor([number for _, number, _, _, _ in rows]),
            "bootstrap": torch.tensor([episode.stop_reason.bootstraps for _, _, episode, _, _ in rows]),
        },
        non_tensors={
            "item_id": objects([episode.task.item_id for _, _, episode, _, _ in rows]),
            "sampled_ids": objects([_sampled_ids(segment) for _, _, _, segment, _ in rows]),
        },
    )


def assert_only_sampled_tokens_train(batch: DataProto) -> int:
    """Law 2, proven on the batch before every update: the tokens under the mask are those the engine returned.

    Of how many tokens it was proven.
    """
    mask = batch.batch["response_mask"].bool()
    responses = batch.batch["input_ids"][:, -mask.shape[1] :]  # what the workers read
    for row, sampled in enumerate(batch.non_tensor_batch["sampled_ids"]):
        trained = responses[row][mask[row]].tolist()
        if trained != sampled:
            raise AssertionError(
                f"row {row} ({batch.non_tensor_batch['item_id'][row]}) would train on {len(trained)} tokens that are "
                f"not the {len(sampled)} sampled ones: the response mask or the token ids are wrong"
            )
    return int(mask.sum())


def _sampled_ids(segment: Segment) -> list[int]:
    return [token for turn in segment.trained for token in turn.token_ids]


def objects(values: list[object]) -> np.ndarray:
    """A one-dimensional object array, whatever the values are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
