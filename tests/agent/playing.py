"""What the tests of episodes share: a small model that does as it is told, and an agent on a live service."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import call, live_service
from toy_worlds import Moody

from openmanus_rl.agent.openmanus import OpenManusAgent, RolloutLimits
from openmanus_rl.agent.play import EpisodeRequest, Player
from openmanus_rl.agent.rewards import Judge, TokenRewards, turn_rewards
from openmanus_rl.agent.templates import TEMPLATES, ActionTemplate
from openmanus_rl.config.schema import AgentConfig
from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.envs.client.base import Patience
from openmanus_rl.envs.client.native import NativeClient
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.inference.base import Completion
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, save_model
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model

REACT = TEMPLATES.lookup("react")
ACTIONS = ("up", "crash", "hang", "doze")
ANSWERS = {**{action: REACT.render(action) for action in ACTIONS}, "babble": "Thought: hm"}
"""What the obedient model answers to a task whose prompt is the key; babble has no action."""
CONTEXT = 512
TOLD = "Invalid answer: the answer has no line that starts with Action:."


class Shaky(Moody):
    """A moody counter that cuts a task after `cut` steps and finds dozing invalid.

    `greeting` is added to the first observation, `chatter` to the others.
    """

    def __init__(
        self, goal: int = 3, nap: float = 6.0, cut: int = 10**6, greeting: str = "", chatter: str = ""
    ) -> None:
        super().__init__(goal, nap)
        self.cut = cut
        self.greeting = greeting
        self.chatter = chatter

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        truncated = self.acted >= self.cut and not result.terminated
        info = {"invalid": "no time to sleep"} if action == "doze" else {}
        return StepResult(result.observation, result.reward, result.terminated, truncated, result.success, info)

    def _seen(self) -> Observation:
        return Observation(super()._seen().text + (self.chatter if self.acted else self.greeting))


def build_obedient_model(directory: Path) -> None:
    """A random model first (`directory/random`), then one that was shown every answer until it repeats them."""
    dice = random.Random(0)
    seen = [f"native: {count} of {goal}" for count in range(8) for goal in (3, 100)]
    conversations = []
    for word, answer in ANSWERS.items():
        for _ in range(5):
            messages = TEMPLATES["react"].opening(word, dice.choice(seen))
            for observation in [TOLD] * 6 if word == "babble" else dice.choices(seen, k=6):
                messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": observation}]
            conversations.append(messages[:-1])
    corpus = [message["content"] for conversation in conversations for message in conversation]
    build_tiny_model(directory / "random", corpus, TinyModelSpec(hidden_size=32, heads=2, max_positions=CONTEXT), 0)
    model, tokenizer = load_causal_lm(directory / "random"), load_tokenizer(directory / "random")
    renderer = ChatRenderer(tokenizer)
    rows = [renderer.conversation_ids(conversation) for conversation in conversations]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in rows])
    labels = torch.where(torch.tensor([mask + [0] * (width - len(mask)) for _, mask in rows]).bool(), ids, -100)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = model(input_ids=ids, labels=labels).loss
        if loss < 0.005:
            return save_model(model, tokenizer, directory / "obedient")
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    raise AssertionError(f"the obedient model did not learn its answers: loss {loss}")


class ListeningEngine(EmbeddedEngine):
    """The embedded engine, and a list of everything it was asked and everything it answered."""

    def __init__(self, model: torch.nn.Module, **options: Any) -> None:
        super().__init__(model, **options)
        self.heard: list[tuple[str, list[int], Completion]] = []

    async def generate(self, prompt_ids: list[int], sampling: Any, **more: Any) -> Completion:
        completion = await super().generate(prompt_ids, sampling, **more)
        self.heard.append((more["session"], list(prompt_ids), completion))
        return completion


@dataclass
class Setting:
    """A live service and an agent that plays on it."""

    agent: OpenManusAgent
    engine: ListeningEngine
    model: torch.nn.Module
    renderer: ChatRenderer
    url: str

    def open_sessions(self) -> int:
        return call("GET", f"{self.url}/health").content["sessions"]


@contextmanager
def setting(
    model_dir: Path,
    world: type = Shaky,
    *,
    env_name: str = "counter",
    options: dict[str, Any] | None = None,
    service: Limits | None = None,
    agent: dict[str, Any] | None = None,
    rollout: RolloutLimits = RolloutLimits(retries=0),
    rewards: TokenRewards = turn_rewards,
    judge: Judge | None = None,
    max_context: int = CONTEXT,
    engine_context: int = CONTEXT,
    step_seconds: float = 120.0,
    client: type[NativeClient] = NativeClient,
    url: str | None = None,
    model: PreTrainedModel | None = None,
    template: ActionTemplate = REACT,
) -> Iterator[Setting]:
    """An agent with `model`, or that at `model_dir`, on the service at `url`, or on one of `world` in this process."""
    model = model or load_causal_lm(model_dir)
    with nullcontext(url) if url else live_service(world, options, service, spec=env_name) as url:
        engine = ListeningEngine(model, max_sessions=64, max_context=engine_context)
        player = Player(
            env_name=env_name,
            config=AgentConfig(**{"max_turns": 8, "max_tokens_per_turn": 16, **(agent or {})}),
            template=template,
            renderer=ChatRenderer(load_tokenizer(model_dir)),
            engine=engine,
            client=client([url], patience=Patience(120.0, step_seconds, 30.0, tries=2, backoff_seconds=0.01)),
            max_context=max_context,
        )
        played_by = OpenManusAgent(player, rollout, rewards, judge)
        try:
            yield Setting(played_by, engine, model, player.renderer, url)
        finally:
            played_by.run(engine.close())
            played_by.close()


def task(word: str = "up", number: int | str = 0, env: str = "counter") -> Task:
    return Task(env, f"{env}_{number}", prompt=word)


def request(
    word: str = "up",
    number: int | str = 0,
    *,
    env: str = "counter",
    sample: int = 0,
    seed: int = 1,
    temperature: float = 0.0,
) -> EpisodeRequest:
    """Greedy by default: the obedient model then does exactly what the word says."""
    return EpisodeRequest(task(word, number, env), 0, sample, seed, temperature)
