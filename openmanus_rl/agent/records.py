"""Episodes as JSON lines: what was said, done and seen, and every token with its mask, log-prob, version and reward."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.rewards import TokenRewards, turn_rewards
from openmanus_rl.envs.base import Task
from openmanus_rl.files import write_text


def write_episodes(path: Path, episodes: Iterable[Episode], rewards: TokenRewards = turn_rewards) -> None:
    """Write a file of episodes, whole or not at all; `read_episodes` gives the same episodes back."""
    records = (episode_to_dict(episode, rewards) for episode in episodes)
    write_text(path, "".join(json.dumps(record, ensure_ascii=False, default=_plain) + "\n" for record in records))


def read_episodes(path: Path) -> list[Episode]:
    """The episodes of a file, as they were played."""
    with path.open(encoding="utf-8") as file:
        return [episode_from_dict(json.loads(line)) for line in file]


def episode_to_dict(episode: Episode, rewards: TokenRewards) -> dict[str, Any]:
    """An episode as plain values. Per-token lists are as long as their segment, null where nothing was sampled."""
    task = episode.task
    # A failed episode is no sample, so nothing scores it. Score functions may note on the episode what they said.
    allocation = rewards(episode) if episode.stop_reason.is_sample else [[] for _ in episode.segments]
    return {
        "env": task.env,
        "item_id": task.item_id,
        "group": episode.group,
        "sample": episode.sample,
        "seed": episode.seed,
        "stop_reason": episode.stop_reason.value,
        "success": episode.success,
        "return": episode.episode_return,
        "scores": episode.scores,
        "failure": episode.failure,
        "chosen": episode.chosen,
        "failed_tries": [reason.value for reason in episode.failed_tries],
        "turns": [
            _turn_to_dict(turn, index) for index, segment in enumerate(episode.segments) for turn in segment.turns
        ],
        "segments": [
            _segment_to_dict(segment, on_tokens)
            for segment, on_tokens in zip(episode.segments, allocation, strict=True)
        ],
        "task": {
            "seed": task.seed,
            "prompt": task.prompt,
            "ground_truth": task.ground_truth,
            "extra": dict(task.extra),
        },
    }


def episode_from_dict(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_dict`; the rewards on tokens are not part of an episode."""
    segments = [_segment_from_dict(part) for part in record["segments"]]
    for turn in record["turns"]:
        index = turn["segment"]
        segments[index].turns.append(_turn_from_dict(turn, record["segments"][index]))
    return Episode(
        task=Task(env=record["env"], item_id=record["item_id"], **record["task"]),
        group=record["group"],
        sample=record["sample"],
        seed=record["seed"],
        segments=segments,
        stop_reason=StopReason(record["stop_reason"]),
        success=record["success"],
        failure=record["failure"],
        scores=record["scores"],
        chosen=record["chosen"],
        failed_tries=[StopReason(reason) for reason in record["failed_tries"]],
    )


def _turn_to_dict(turn: Turn, segment: int) -> dict[str, Any]:
    return {
        "segment": segment,
        "start": turn.start,
        "end": turn.end,
        "text": turn.text,
        "action": turn.action,
        "invalid_reason": turn.invalid_reason,
        "kind": turn.kind,
        "action_span": turn.action_span,
        "finish": turn.finish,
        "reward": turn.reward,
        "observation": turn.observation,
        "state_key": turn.state_key,
        "generate_seconds": turn.generate_seconds,
        "env_seconds": turn.env_seconds,
    }


def _turn_from_dict(turn: Mapping[str, Any], segment: Mapping[str, Any]) -> Turn:
    sampled = slice(turn["start"], turn["end"])
    return Turn(
        start=turn["start"],
        token_ids=segment["ids"][sampled],
        log_probs=[value for value in segment["log_probs"][sampled] if value is not None],
        versions=[value for value in segment["versions"][sampled] if value is not None],
        text=turn["text"],
        action=turn["action"],
        invalid_reason=turn["invalid_reason"],
        state_key=turn["state_key"],
        kind=turn["kind"],
        action_span=None if turn["action_span"] is None else tuple(turn["action_span"]),
        finish=turn["finish"],
        observation=turn["observation"],
        reward=turn["reward"],
        generate_seconds=turn["generate_seconds"],
        env_seconds=turn["env_seconds"],
    )


def _segment_from_dict(part: Mapping[str, Any]) -> Segment:
    summary = part["summary"]
    return Segment(
        ids=part["ids"],
        prompt_length=part["prompt_length"],
        summary=None if summary is None else _turn_from_dict(summary, part),
        trains_summary=part["trains_summary"],
    )


def _segment_to_dict(segment: Segment, on_tokens: Sequence[tuple[int, float]]) -> dict[str, Any]:
    length = len(segment.ids)
    rewards = [0.0] * length
    for position, reward in on_tokens:
        rewards[position] += reward
    mask = [0] * length
    log_probs: list[float | None] = [None] * length
    versions: list[int | None] = [None] * length
    for turn in segment.sampled:
        sampled = slice(turn.start, turn.end)
        if segment.ids[sampled] != turn.token_ids:
            raise ValueError(f"the turn at {turn.start} was not sampled where its segment says")
        trains = turn is not segment.summary or segment.trains_summary
        mask[sampled] = [int(trains)] * len(turn.token_ids)
        if turn.log_probs:
            log_probs[sampled] = turn.log_probs
            versions[sampled] = turn.versions
    return {
        "prompt_length": segment.prompt_length,
        "ids": segment.ids,
        "mask": mask,
        "log_probs": log_probs,
        "versions": versions,
        "rewards": rewards,
        "summary": None if segment.summary is None else _turn_to_dict(segment.summary, 0),
        "trains_summary": segment.trains_summary,
    }


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays come out of parquet; JSON knows only Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written as JSON")
