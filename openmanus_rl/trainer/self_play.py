"""A model plays: exploring training tasks for `evolve` and `dpo`, and being measured on held-out ones."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count, islice
from pathlib import Path

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.openmanus import OpenManusAgent, episode_seed
from openmanus_rl.agent.play import EpisodeRequest
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.sampler import TaskSampler
from openmanus_rl.envs.base import Task
from openmanus_rl.inference.factory import running_engine
from openmanus_rl.models.load import load_tokenizer
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.agents import make_agent
from openmanus_rl.trainer.evaluate import Evaluation, evaluate


@contextmanager
def playing(config: RunConfig, model: Path, env_urls: Mapping[str, list[str]]) -> Iterator[OpenManusAgent]:
    """An agent that samples from the model at `model`, for as long as the block lasts."""
    rewards = RewardManager(config.algorithm, config.agent.max_episode_tokens)
    with (
        running_engine(config, str(model)) as engine,
        closing(make_agent(config, engine, load_tokenizer(model), env_urls, rewards)) as agent,
    ):
        yield agent


def explored_tasks(tasks: Sequence[Task], seed: int, per_round: int, number: int) -> list[Task]:
    """The tasks of round `number`, counted from 1: each round goes on in the order where the last one stopped."""
    sampler = TaskSampler(len(tasks), seed)
    return [tasks[index] for index in sampler.next(per_round * number)[-per_round:]]


def explore(agent: OpenManusAgent, tasks: Sequence[Task], config: RunConfig, number: int) -> list[Episode]:
    """Play each task `rollout.group_size` times; failed episodes, which are no samples, are left out.

    A task that comes again is played from other seeds, or its episodes would be those that were played already.
    """
    samples: dict[tuple[str, str], Iterator[int]] = defaultdict(count)
    requests = [
        EpisodeRequest(
            task,
            group,
            sample,
            seed=episode_seed(config.trainer.seed, number, task.item_id, sample),
            temperature=config.rollout.temperature,
        )
        for group, task in enumerate(tasks)
        for sample in islice(samples[task.env, task.item_id], config.rollout.group_size)
    ]
    episodes = [episode for episode in agent.play(requests) if episode.stop_reason.is_sample]
    for episode in episodes:
        agent.rewards(episode)  # notes the scores on the episode
    return episodes


def measure(agent: OpenManusAgent, tasks: Sequence[Task], config: RunConfig) -> Evaluation:
    """Held-out success, as the trainer's validation measures it."""
    return evaluate(
        agent,
        tasks,
        config.trainer.seed,
        config.rollout.validation_temperature,
        config.data.validation_samples,
    )
