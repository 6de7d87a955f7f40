"""What bench/rollout.py plays with: worlds and an engine that take as long as they are told, or no time."""

import asyncio
import math
import random
import tempfile
from pathlib import Path

import torch

from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.agent.play import EpisodeRequest, Player
from openmanus_rl.agent.schedule import RolloutLimits
from openmanus_rl.agent.templates import ActionTemplate, ParsedAction
from openmanus_rl.config.schema import AgentConfig
from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.envs.client.base import EnvFailure, EnvironmentClient, Handle
from openmanus_rl.inference.base import Completion, FinishReason, InferenceEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model

OBSERVATION = "You are in a room with a door in the north and a table with a lamp on it."
CONTEXT = 1024


class Anything(ActionTemplate):
    """Every answer is an action."""

    instructions = "Answer."

    def write(self, action: str) -> str:
        return action

    def parse(self, answer: str) -> ParsedAction:
        return ParsedAction(answer, span=(0, len(answer)))


class World(EnvironmentClient):
    """Says the same at every step; `pause`, if it is set, is awaited at each. Ends nothing: `max_turns` does."""

    def __init__(self) -> None:
        self.steps = 0

    async def start(self, task: Task) -> Handle:
        return Handle(task, "", 0, Observation(OBSERVATION), None, "Look around.")

    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        self.steps += 1
        handle.turn += 1
        await self.pause(handle)
        seen = f"{OBSERVATION} ({handle.turn})"  # a text of its own, as from a server
        return StepResult(Observation(seen), 0.0, False, False, False), None

    async def pause(self, handle: Handle) -> None:
        """Takes no time."""

    async def close(self, handle: Handle) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """Nor here."""


def latency(item: str, turn: int, mean: float, sigma: float) -> float:
    """Log-normal with this mean: the same for the same episode and turn, whoever plays it."""
    return random.Random(f"{item}/{turn}").lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


class SlowWorld(World):
    """Every step takes its latency."""

    def __init__(self, mean: float, sigma: float) -> None:
        super().__init__()
        self.mean, self.sigma = mean, sigma

    async def pause(self, handle: Handle) -> None:
        if self.mean:
            await asyncio.sleep(latency(handle.task.item_id, handle.turn, self.mean, self.sigma))


class LockStepWorld(SlowWorld):
    """The same, with all episodes waiting for each other before and after every step."""

    def __init__(self, mean: float, sigma: float, episodes: int) -> None:
        super().__init__(mean, sigma)
        self._episodes = episodes
        self._barrier: asyncio.Barrier | None = None

    async def pause(self, handle: Handle) -> None:
        self._barrier = self._barrier or asyncio.Barrier(self._episodes)
        await self._barrier.wait()
        await super().pause(handle)
        await self._barrier.wait()


class FaultyWorld(World):
    """Steps fail at random, or never come back; rewards depend on the task and the turn only."""

    def __init__(self, failing: float, hanging: float) -> None:
        super().__init__()
        self.failing, self.hanging = failing, hanging
        self.met = {"failed": 0, "hung": 0}
        self._dice = random.Random(0)

    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        luck = self._dice.random()
        if luck < self.failing:
            self.met["failed"] += 1
            raise EnvFailure("the world's server is gone")
        if luck < self.failing + self.hanging:
            self.met["hung"] += 1
            await asyncio.Event().wait()
        await super().step(handle, action)
        reward = latency(handle.task.item_id, handle.turn, 1.0, 1.0)
        return StepResult(Observation(OBSERVATION), reward, False, False, False), None


class PacedEngine(InferenceEngine):
    """Answers after so many seconds, however many ask, with tokens of a real answer."""

    def __init__(self, answer: list[int], seconds: float = 0.0) -> None:
        self._answer = answer
        self._seconds = seconds
        self._log_probs = [-0.5] * len(answer)
        self._versions = [0] * len(answer)

    @property
    def version(self) -> int:
        return 0

    async def generate(self, prompt_ids, sampling, *, seed, session, deadline=None) -> Completion:
        await asyncio.sleep(self._seconds)
        return Completion(list(self._answer), list(self._log_probs), list(self._versions), FinishReason.STOP)

    async def score(self, ids, temperature=1.0):
        raise NotImplementedError

    def abort(self, session: str) -> None:
        """Nothing runs."""

    def release(self, session: str) -> None:
        """Nothing is held."""

    async def update_weights(self, source, version):
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to stop."""


def tiny_model(hidden: int = 128) -> tuple[torch.nn.Module, ChatRenderer]:
    """A random model with a tokenizer of the world's words."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        corpus = [OBSERVATION, "Look around.", "Thought: go\nAction: open the door and look"] * 8
        spec = TinyModelSpec(hidden_size=hidden, max_positions=CONTEXT)
        build_tiny_model(Path(directory), corpus, spec, 0)
        return load_causal_lm(directory), ChatRenderer(load_tokenizer(directory))


def make_agent(
    engine: InferenceEngine, renderer: ChatRenderer, world: World, *, turns: int, tokens: int, **limits: float
) -> OpenManusAgent:
    config = AgentConfig(max_turns=turns, max_tokens_per_turn=tokens)
    player = Player("room", config, Anything(), renderer, engine, world, CONTEXT)
    return OpenManusAgent(player, RolloutLimits(**{"concurrency": 4096, "episode_timeout": 300.0, **limits}))


def requests(count: int, group_size: int = 4) -> list[EpisodeRequest]:
    return [
        EpisodeRequest(Task("room", f"room_{index}"), index // group_size, index % group_size, index, 1.0)
        for index in range(count)
    ]
