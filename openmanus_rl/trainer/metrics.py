"""What played episodes say about the policy, under the names users know."""

from collections import Counter
from collections.abc import Sequence

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.data.tasks import directory_name
from openmanus_rl.tracking.stats import wilson


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


def world_metrics(episodes: Sequence[Episode], prefix: str, worlds: Sequence[str]) -> dict[str, float]:
    """Success of each world by itself, with its interval and the number of episodes behind it."""
    metrics: dict[str, float] = {}
    for world in worlds:
        samples = [one for one in episodes if one.task.env == world and one.stop_reason.is_sample]
        if not samples:
            continue  # none of its tasks was drawn, or none could be played
        success = wilson(sum(one.success for one in samples), len(samples))
        name = f"{prefix}/success/{directory_name(world)}"
        metrics |= {
            f"{name}/rate": success.rate,
            f"{name}/low": success.low,
            f"{name}/high": success.high,
            f"{name}/episodes": len(samples),
            f"{prefix}/return/{directory_name(world)}": mean([one.episode_return for one in samples]),
        }
    return metrics


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
