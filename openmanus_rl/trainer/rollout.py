"""The episodes of one training step: a group of each task, refills for groups that teach nothing, greedy episodes."""

from collections.abc import Sequence

import torch

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.openmanus import OpenManusAgent, episode_seed, generation_batch
from openmanus_rl.agent.play import EpisodeRequest
from openmanus_rl.algorithms.groups import differing_groups
from openmanus_rl.algorithms.registry import find_estimator
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.sampler import Sampler
from openmanus_rl.envs.base import Task, stable_hash
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto
from openmanus_rl.trainer.metrics import mean


def play_step(
    agent: OpenManusAgent, sampler: Sampler, tasks: Sequence[Task], config: RunConfig, step: int
) -> tuple[DataProto, list[Episode], dict[str, float]]:
    """The rows to learn from, the episodes they come from with those that failed, and metrics."""
    rollout = config.rollout
    batch = _play_groups(agent, sampler, tasks, config, step, rollout.tasks_per_step, refill=0)
    episodes: list[Episode] = batch.meta_info.pop("episodes")
    metrics: dict[str, float] = {}
    if rollout.refills:
        more = _refill(agent, sampler, tasks, config, step, episodes)
        episodes += more
        batch = agent._convert_rollout_results_to_dataproto([{"episode": episode} for episode in episodes], batch)
        del batch.meta_info["episodes"]
        metrics["groups/refilled"] = len({episode.group for episode in more}) / rollout.tasks_per_step
    if "greedy" in find_estimator(config.algorithm.estimator).requires:
        batch, greedy_metrics = _add_greedy_returns(agent, batch, episodes, config, step)
        metrics |= greedy_metrics
    return batch, episodes, metrics


def learnable_groups(episodes: Sequence[Episode]) -> int:
    """Groups whose played episodes did not all score the same."""
    played = [episode for episode in episodes if episode.stop_reason.is_sample]
    scores = torch.tensor([episode.scores["score"] for episode in played], dtype=torch.float64)
    return len(differing_groups(scores, torch.tensor([episode.group for episode in played])))


def _refill(
    agent: OpenManusAgent,
    sampler: Sampler,
    tasks: Sequence[Task],
    config: RunConfig,
    step: int,
    episodes: Sequence[Episode],
) -> list[Episode]:
    """Groups of other tasks, up to `rollout.refills` times, until as many as were drawn can be learnt from."""
    more: list[Episode] = []
    for refill in range(1, config.rollout.refills + 1):
        missing = config.rollout.tasks_per_step - learnable_groups([*episodes, *more])
        if missing < 1:
            break
        fresh = _play_groups(agent, sampler, tasks, config, step, missing, refill).meta_info["episodes"]
        first_free = 1 + max(episode.group for episode in (*episodes, *more))
        for episode in fresh:
            episode.group += first_free
        more += fresh
    return more


def _play_groups(
    agent: OpenManusAgent,
    sampler: Sampler,
    tasks: Sequence[Task],
    config: RunConfig,
    step: int,
    count: int,
    refill: int,
) -> DataProto:
    drawn = [tasks[index] for index in sampler.next(count)]
    # A task that is drawn again within a step must not be played again in the same way.
    seed = stable_hash(f"{config.trainer.seed}/refill/{refill}") if refill else config.trainer.seed
    rollout = config.rollout
    enough = rollout.group_size if rollout.oversample else None
    gen_batch = generation_batch(drawn, seed, rollout.temperature, enough)
    return agent.run_llm_loop(gen_batch.repeat(rollout.group_size + rollout.oversample), global_steps=step)


def _add_greedy_returns(
    agent: OpenManusAgent, batch: DataProto, episodes: Sequence[Episode], config: RunConfig, step: int
) -> tuple[DataProto, dict[str, float]]:
    """Play each task once greedily, for the column `greedy_return`; rows of a task where that failed are left out."""
    tasks = {episode.group: episode.task for episode in episodes}
    requests = [
        EpisodeRequest(task, group, 0, episode_seed(config.trainer.seed, step, task.item_id, -1), 0.0, step)
        for group, task in tasks.items()
    ]
    played = [episode for episode in agent.play(requests) if episode.stop_reason.is_sample]
    returns = {episode.group: episode.scores["score"] for episode in played}
    groups = batch.batch["group_index"].tolist()
    if not any(group in returns for group in groups):
        raise UserError(
            "the greedy episodes of the step's tasks failed: there is no baseline to compare with.",
            "The environment servers' logs are in the run directory under env/.",
        )
    batch = batch[torch.tensor([group in returns for group in groups])]
    batch.batch["greedy_return"] = torch.tensor([returns[group] for group in groups if group in returns])
    return batch, {
        "greedy/return": mean([episode.episode_return for episode in played]),
        "greedy/success": mean([episode.success for episode in played]),
    }
