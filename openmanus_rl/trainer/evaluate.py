"""How good a policy is on given tasks. The trainer's validation and `openmanus-rl eval` are this one function."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.openmanus import OpenManusAgent, episode_seed
from openmanus_rl.agent.play import EpisodeRequest
from openmanus_rl.agent.strategies import Plain, Strategy
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.stats import Interval, wilson
from openmanus_rl.trainer.metrics import episode_metrics

VALIDATION_STEP = -1
"""Takes the place of the training step in the seeds of validation episodes: the same at every measurement."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of all tasks. Failed episodes are not counted, but said; one without a score has its success."""

    success: Interval
    episodes: list[Episode]

    def metrics(self) -> dict[str, float]:
        """For the metrics file, under `val/`."""
        return episode_metrics(self.episodes, "val/")


def evaluate(
    agent: OpenManusAgent,
    tasks: Sequence[Task],
    seed: int,
    temperature: float,
    samples: int = 1,
    strategy: Strategy | None = None,
    on_end: Callable[[Episode], None] | None = None,
) -> Evaluation:
    """Play each task `samples` times. The same weights, tasks and seed give the same number, wherever it is called."""
    requests = [
        EpisodeRequest(
            task,
            group=index,
            sample=sample,
            seed=episode_seed(seed, VALIDATION_STEP, task.item_id, sample),
            temperature=temperature,
            strategy=strategy or Plain(),
        )
        for index, task in enumerate(tasks)
        for sample in range(samples)
    ]
    episodes = agent.play(requests, on_end)
    played = [episode for episode in episodes if episode.stop_reason.is_played]
    if not played:
        reasons = Counter(f"{episode.stop_reason}: {episode.failure}" for episode in episodes)
        raise UserError(f"all {len(episodes)} episodes failed, most by {reasons.most_common(1)[0][0]}")
    for episode in played:
        if episode.stop_reason.is_sample:
            agent.rewards(episode)  # notes the scores on the episode
    return Evaluation(wilson(sum(episode.success for episode in played), len(played)), episodes)
