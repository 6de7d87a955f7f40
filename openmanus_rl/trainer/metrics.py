"""What played episodes say about the policy, under the names users know."""

from collections import Counter
from collections.abc import Sequence

from openmanus_rl.agent.episode import Episode, StopReason


def episode_metrics(episodes: Sequence[Episode], prefix: str) -> dict[str, float]:
    """Means over the episodes that are samples; failures are counted by cause, never averaged in."""
    samples = [episode for episode in episodes if episode.stop_reason.is_sample]
    turns = [turn for episode in samples for turn in episode.turns]
    reasons = Counter(episode.stop_reason for episode in episodes)
    retries = Counter(reason for episode in episodes for reason in episode.failed_tries)
    scores = {name for episode in samples for name in episode.scores}
    return {
        f"{prefix}/success": mean([episode.success for episode in samples]),
        f"{prefix}/return": mean([episode.episode_return for episode in samples]),
        f"{prefix}/episodes": len(samples),
        f"{prefix}/num_turns/mean": mean([len(episode.turns) for episode in samples]),
        f"{prefix}/response_length/mean": mean([episode.sampled_tokens for episode in samples]),
        f"{prefix}/invalid_actions": mean([turn.invalid_reason is not None for turn in turns]),
        **{f"{prefix}/stop/{reason}": count / len(episodes) for reason, count in reasons.items()},
        **{f"{prefix}/retries/{reason}": retries[reason] for reason in StopReason.failures()},
        **{
            f"{prefix}/score/{name}": mean([episode.scores[name] for episode in samples if name in episode.scores])
            for name in sorted(scores)
        },
    }


def staleness_metrics(episodes: Sequence[Episode], version: int) -> dict[str, float]:
    """How many versions behind `version`, which learns from them, the policies were that sampled the tokens."""
    samples = [episode for episode in episodes if episode.stop_reason.is_sample]
    behind = [version - sampled for episode in samples for turn in episode.turns for sampled in turn.versions]
    return {"rollout/staleness_mean": mean(behind), "rollout/staleness_max": max(behind, default=0)}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
