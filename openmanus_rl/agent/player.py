"""What an episode is played with, and what is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from openmanus_rl.agent.strategies.base import Strategy
from openmanus_rl.agent.strategies.plain import Plain
from openmanus_rl.agent.templates import ActionTemplate
from openmanus_rl.config.schema import AgentConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client.base import EnvironmentClient
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.models.plain_chat import Renderer

CUT_MARK = " … "
"""Stands where the middle of a long observation was cut."""


@dataclass(frozen=True)
class EpisodeRequest:
    """What to play: a task, as which episode of which group, from which seed."""

    task: Task
    group: int
    sample: int
    seed: int
    temperature: float
    step: int | None = None
    """The training step it is played for, where `agent.max_turns` is a schedule; None: the longest horizon."""
    strategy: Strategy = field(default_factory=Plain)


@dataclass(frozen=True)
class Player:
    """What an episode is played with."""

    env_name: str
    config: AgentConfig
    template: ActionTemplate
    """For every world that has none of its own in `templates`."""
    renderer: Renderer
    engine: InferenceEngine
    client: EnvironmentClient
    max_context: int
    templates: Mapping[str, ActionTemplate] = field(default_factory=dict)
    """By the name of the world."""
    _stop_tokens: dict[str, frozenset[int]] = field(default_factory=dict)

    def template_of(self, env: str) -> ActionTemplate:
        """How an answer is written in a world."""
        return self.templates.get(env, self.template)

    def stop_token_ids(self, env: str) -> frozenset[int]:
        """Tokens at which an answer is complete in a world."""
        if env not in self._stop_tokens:
            self._stop_tokens[env] = self.renderer.ends_with(self.template_of(env).stop)
        return self._stop_tokens[env]

    def shorten(self, text: str) -> str:
        """An observation within the limit in tokens: the middle is cut out of a longer one."""
        limit = self.config.max_observation_tokens
        if len(text.encode()) <= limit:  # a token is at least one byte
            return text
        ids = self.renderer.encode_content(text)
        if len(ids) <= limit:
            return text
        half = (limit - len(self.renderer.encode_content(CUT_MARK))) // 2
        # A character whose bytes were cut apart decodes to replacement characters, which are longer than what was cut.
        head, tail = self.renderer.decode(ids[:half]), self.renderer.decode(ids[-half:])
        return head.rstrip("\ufffd") + CUT_MARK + tail.lstrip("\ufffd")
