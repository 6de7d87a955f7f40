"""Episodes as JSON lines: what was said, done and seen, and every token with all that is known of it.

Texts come first in a record and the lists of tokens last, so that a search for words need not read the tokens.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.rewards import TokenRewards, turn_rewards
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_text


@dataclass(frozen=True)
class TokenCredit:
    """What the trainer made of a segment's tokens; each list is as long as the segment, None where nothing trains."""

    log_probs: list[float | None]
    """The trainer's own log-probs before the update."""
    advantages: list[float | None]


Credit = Callable[[Episode], Sequence[TokenCredit] | None]
"""For each segment of an episode what the trainer made of it; None if the episode was not trained on."""


EpisodePage = Callable[[Mapping[str, Any]], str]
"""A record as a page that shows it."""


@dataclass(frozen=True)
class RecordDetails:
    """What a record says beside the episode itself."""

    rewards: TokenRewards = turn_rewards
    pieces: Callable[[Sequence[int]], list[str]] | None = None
    """Token ids to the text that each adds."""
    credit: Credit | None = None
    step: int | None = None
    """The training step of the episode, or the step at which it was a validation."""


def write_episodes(path: Path, episodes: Iterable[Episode], details: RecordDetails = RecordDetails()) -> None:
    """Write a file of episodes, whole or not at all; `read_episodes` gives the same episodes back."""
    write_text(path, "".join(episode_line(episode, details) for episode in episodes))


def write_pages(path: Path, page: EpisodePage) -> list[Path]:
    """Draw every episode of a file: `name.jsonl` gets `name_0001.html` and so on beside it."""
    pages = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            pages.append(path.with_name(f"{path.stem}_{number:04d}.html"))
            write_text(pages[-1], page(json.loads(line)))
    return pages


def episode_line(episode: Episode, details: RecordDetails = RecordDetails()) -> str:
    """An episode as a line of JSON; one with halves of characters, which no file can hold, has its text escaped."""
    record = episode_to_dict(episode, details)
    line = json.dumps(record, ensure_ascii=False, default=_plain) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(record, default=_plain) + "\n"
    return line


def read_episodes(path: Path) -> list[Episode]:
    """The episodes of a file, as they were played."""
    with path.open("rb") as file:
        return [_read(line, f"{path}, line {number}") for number, line in enumerate(file, 1)]


def _read(line: bytes, where: str) -> Episode:
    try:
        return episode_from_dict(json.loads(line))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"{where} is no episode: {error!r}.", "A run's are in its directory episodes/.") from error


def episode_to_dict(episode: Episode, details: RecordDetails = RecordDetails()) -> dict[str, Any]:
    """An episode as plain values. Per-token lists are as long as their segment, null where nothing was sampled."""
    task = episode.task
    # A failed episode is no sample, so nothing scores it. Score functions may note on the episode what they said.
    allocation = details.rewards(episode) if episode.stop_reason.is_sample else [[] for _ in episode.segments]
    credited = details.credit(episode) if details.credit else None
    credit: Sequence[TokenCredit | None] = credited or [None] * len(episode.segments)
    return {
        "env": task.env,
        "item_id": task.item_id,
        "step": details.step,
        "group": episode.group,
        "sample": episode.sample,
        "seed": episode.seed,
        "stop_reason": episode.stop_reason.value,
        "success": episode.success,
        "first_observation": episode.first_observation,
        "return": episode.episode_return,
        "scores": episode.scores,
        "failure": episode.failure,
        "chosen": episode.chosen,
        "failed_tries": [reason.value for reason in episode.failed_tries],
        "task": {
            "seed": task.seed,
            "prompt": task.prompt,
            "ground_truth": task.ground_truth,
            "extra": dict(task.extra),
        },
        "turns": [
            _turn_to_dict(turn, index) for index, segment in enumerate(episode.segments) for turn in segment.turns
        ],
        "segments": [
            _segment_to_dict(segment, on_tokens, of_segment, details.pieces)
            for segment, on_tokens, of_segment in zip(episode.segments, allocation, credit, strict=True)
        ],
    }


def episode_from_dict(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_dict`; what the details added is not part of an episode."""
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
        first_observation=record.get("first_observation"),
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


def _segment_to_dict(
    segment: Segment,
    on_tokens: Sequence[tuple[int, float]],
    credit: TokenCredit | None,
    pieces: Callable[[Sequence[int]], list[str]] | None,
) -> dict[str, Any]:
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
        "trainer_log_probs": credit.log_probs if credit else None,
        "advantages": credit.advantages if credit else None,
        "pieces": pieces(segment.ids) if pieces else None,
    }


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays come out of parquet; JSON knows only Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written as JSON")
