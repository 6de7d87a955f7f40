"""Agents as a config describes them; the trainer and `openmanus-rl eval` make them here alike."""

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase

from openmanus_rl.agent.gateway import ProgramAgent
from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.agent.play import Player
from openmanus_rl.agent.schedule import RolloutLimits
from openmanus_rl.agent.templates import find_template
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.client.base import EnvironmentClient, Patience
from openmanus_rl.envs.client.remote import make_client
from openmanus_rl.envs.client.several import SeveralClients
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.plain_chat import PlainChat
from openmanus_rl.registry import load_object
from openmanus_rl.rewards import RewardManager

CHARACTERS_PER_TOKEN = 4
"""About as many as the tokens of large models have, for limits where nobody tells the tokens."""


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
    tokenizer: PreTrainedTokenizerBase | None,
    env_urls: Mapping[str, list[str]],
    rewards: RewardManager,
) -> OpenManusAgent:
    """An agent for the config's worlds on the servers at `env_urls`, which are given by the world's name.

    Without a tokenizer the model is behind an endpoint and speaks text: limits in tokens then count characters.
    """
    unit = 1 if tokenizer else CHARACTERS_PER_TOKEN
    limited = {name: unit * getattr(config.agent, name) for name in ("max_episode_tokens", "max_observation_tokens")}
    player = Player(
        env_name=config.worlds[0].name,
        config=config.agent.model_copy(update=limited),
        template=find_template(config.agent.template),
        renderer=make_renderer(config, tokenizer) if tokenizer else PlainChat(),
        engine=engine,
        client=_client(config, env_urls),
        max_context=unit * config.model.max_context,
        templates={world.name: find_template(config.template_in(world)) for world in config.worlds},
    )
    rollout = config.rollout
    limits = RolloutLimits(rollout.concurrency, rollout.episode_timeout, rollout.retries, rollout.failure_budget)
    if config.agent.program is not None:
        program = load_object(config.agent.program, "program")
        return ProgramAgent(program, env_urls, player, limits, rewards, rewards.judge)
    return OpenManusAgent(player, limits, rewards, rewards.judge)


def _client(config: RunConfig, env_urls: Mapping[str, list[str]]) -> EnvironmentClient:
    clients = {}
    for world in config.worlds:
        patience = Patience(start_seconds=world.request_timeout, step_seconds=world.request_timeout)
        options = world.options if world.urls else None  # servers of our own were started with them
        clients[world.name] = make_client(world.name, env_urls[world.name], patience, options)
    return SeveralClients(clients) if config.envs else clients[config.env.name]
