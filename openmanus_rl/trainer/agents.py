"""Agents as a config describes them; the trainer and `openmanus-rl eval` make them here alike."""

from transformers import PreTrainedTokenizerBase

from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.agent.play import Player
from openmanus_rl.agent.schedule import RolloutLimits
from openmanus_rl.agent.templates import TEMPLATES
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.client.base import Patience
from openmanus_rl.envs.client.remote import make_client
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.rewards import RewardManager


def make_agent(
    config: RunConfig,
    engine: InferenceEngine,
    tokenizer: PreTrainedTokenizerBase,
    env_urls: list[str],
    rewards: RewardManager,
) -> OpenManusAgent:
    """An agent for the config's world on the servers at `env_urls`."""
    seconds = config.env.request_timeout
    patience = Patience(start_seconds=seconds, step_seconds=seconds)
    player = Player(
        env_name=config.env.name,
        config=config.agent,
        template=TEMPLATES.lookup(config.agent.template),
        renderer=ChatRenderer(tokenizer),
        engine=engine,
        client=make_client(config.env.name, env_urls, patience),
        max_context=config.model.max_context,
    )
    rollout = config.rollout
    limits = RolloutLimits(rollout.concurrency, rollout.episode_timeout, rollout.retries, rollout.failure_budget)
    return OpenManusAgent(player, limits, rewards, rewards.judge)
