"""Agents as a config describes them; the trainer and `openmanus-rl eval` make them here alike."""

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase

from openmanus_rl.agent.openmanus import OpenManusAgent, RolloutLimits
from openmanus_rl.agent.play import Player
from openmanus_rl.agent.templates import find_template
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.client.base import EnvironmentClient, Patience
from openmanus_rl.envs.client.remote import make_client
from openmanus_rl.envs.client.several import SeveralClients
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.rewards import RewardManager


def make_renderer(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> ChatRenderer:
    """How conversations of the config's action template become tokens of the model."""
    return ChatRenderer(
        tokenizer,
        observation_role=find_template(config.template_in(config.worlds[0])).observation_role,
        keep_history=config.model.keep_history,
        options=config.model.chat_options,
    )


def make_agent(
    config: RunConfig,
    engine: InferenceEngine,
    tokenizer: PreTrainedTokenizerBase,
    env_urls: Mapping[str, list[str]],
    rewards: RewardManager,
) -> OpenManusAgent:
    """An agent for the config's worlds on the servers at `env_urls`, which are given by the world's name."""
    player = Player(
        env_name=config.worlds[0].name,
        config=config.agent,
        template=find_template(config.agent.template),
        renderer=make_renderer(config, tokenizer),
        engine=engine,
        client=_client(config, env_urls),
        max_context=config.model.max_context,
        templates={world.name: find_template(config.template_in(world)) for world in config.worlds},
    )
    rollout = config.rollout
    limits = RolloutLimits(rollout.concurrency, rollout.episode_timeout, rollout.retries)
    return OpenManusAgent(player, limits, rewards, rewards.judge)


def _client(config: RunConfig, env_urls: Mapping[str, list[str]]) -> EnvironmentClient:
    clients = {}
    for world in config.worlds:
        patience = Patience(start_seconds=world.request_timeout, step_seconds=world.request_timeout)
        clients[world.name] = make_client(world.name, env_urls[world.name], patience)
    return SeveralClients(clients) if config.envs else clients[config.env.name]
