"""What played episodes and the batch made of them say, under the names that users of verl know.

What is measured on held-out tasks has the same name with `val/` before it. docs/metrics.md says what each means.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

import torch

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.data.tasks import directory_name
from openmanus_rl.protocol import DataProto
from openmanus_rl.tracking.stats import wilson

_CUT_BY_LENGTH = {StopReason.TOKEN_BUDGET, StopReason.CONTEXT_FULL}


def episode_metrics(episodes: Sequence[Episode], prefix: str = "") -> dict[str, float]:
    """Statistics of the episodes that are samples; failures are counted by cause, never averaged in.

    Success is the world's own, so that one whose score could not be had counts there.
    """
    samples = [episode for episode in episodes if episode.stop_reason.is_sample]
    turns = [turn for episode in samples for turn in episode.turns]
    reasons = Counter(episode.stop_reason for episode in episodes)
    retries = Counter(reason for episode in episodes for reason in episode.failed_tries)
    metrics = {
        **success_metrics([episode for episode in episodes if episode.stop_reason.is_played]),
        **_score_metrics(samples),
        "episode/count": len(samples),
        "episode/return/mean": mean([episode.episode_return for episode in samples]),
        "episode/invalid_actions": mean([turn.invalid_reason is not None for turn in turns]),
        **{f"episode/stop/{reason}": count / len(episodes) for reason, count in reasons.items()},
        **{f"episode/retries/{reason}": retries[reason] for reason in StopReason.failures()},
        **_spread("num_turns", [len(episode.turns) for episode in samples]),
        **_spread("response_length", [episode.sampled_tokens for episode in samples]),
        "response_length/clip_ratio": mean([episode.stop_reason in _CUT_BY_LENGTH for episode in samples]),
        **_spread("prompt_length", [episode.segments[0].prompt_length for episode in samples if episode.segments]),
    }
    return {prefix + name: value for name, value in metrics.items()}


def success_metrics(played: Sequence[Episode]) -> dict[str, float]:
    """`success/…` over all episodes, by environment, and by the difficulty that tasks state: each with its interval."""
    sets: dict[str, list[bool]] = defaultdict(list)
    for episode in played:
        env = directory_name(episode.task.env)
        sets["success"].append(episode.success)
        sets[f"success/{env}"].append(episode.success)
        difficulty = episode.task.extra.get("difficulty")
        if difficulty not in (None, ""):
            sets[f"success/{env}/{directory_name(str(difficulty))}"].append(episode.success)
    metrics: dict[str, float] = {}
    for name, successes in sets.items():
        interval = wilson(sum(successes), len(successes))
        metrics |= {f"{name}/{part}": value for part, value in interval.to_dict().items()}
    return metrics


def batch_metrics(batch: DataProto) -> dict[str, float]:
    """What the update learns from: rewards an episode, and advantages, returns and values a sampled token."""
    columns = batch.batch
    episodes, episode_R = torch.unique(columns["episode_index"], return_inverse=True)
    rewards_R = columns["token_level_rewards"].double().sum(-1)
    rewards_E = rewards_R.new_zeros(len(episodes)).index_add(0, episode_R, rewards_R)
    sets = {"rewards": rewards_E}
    for name in ("advantages", "returns", "values"):
        if name in columns:
            sets[name] = columns[name][columns["response_mask"]]
    return {
        f"critic/{name}/{kind}": float(value)
        for name, values in sets.items()
        for kind, value in (("mean", values.mean()), ("max", values.max()), ("min", values.min()))
    }


def staleness_metrics(episodes: Sequence[Episode], version: int) -> dict[str, float]:
    """How many versions behind `version`, which learns from them, the policies were that sampled the tokens."""
    samples = [episode for episode in episodes if episode.stop_reason.is_sample]
    behind = [version - sampled for episode in samples for turn in episode.turns for sampled in turn.versions]
    return {"rollout/staleness_mean": mean(behind), "rollout/staleness_max": max(behind, default=0)}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _score_metrics(samples: Sequence[Episode]) -> dict[str, float]:
    """The score that is trained on, and beside it every component and every other thing that score functions said."""
    scores: dict[str, list[float]] = defaultdict(list)
    for episode in samples:
        for name, value in episode.scores.items():
            scores[name].append(value)
    total = scores.pop("score", [])
    spread = {"critic/score/std": statistics.pstdev(total), **_spread("critic/score", total)} if total else {}
    return spread | {f"critic/score/{name}/mean": mean(values) for name, values in sorted(scores.items())}


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {f"{name}/mean": mean(values), f"{name}/max": max(values), f"{name}/min": min(values)}
