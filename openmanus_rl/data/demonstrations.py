"""Demonstrations: a world's expert plays, with a stated share of random actions, and every word is kept.

On disk a conversation has AgentTraj's form, `conversations[{from, loss, value}]`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from openmanus_rl import __version__
from openmanus_rl.data.conversations import SPEAKERS, messages_of, read_records
from openmanus_rl.data.messages import Message
from openmanus_rl.data.parquet import write_rows
from openmanus_rl.envs.base import Environment, Task, stable_hash
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.errors import UserError

RenderPrompt = Callable[[str, str], Sequence[Message]]
"""(instructions, first observation) → the messages that open an episode."""
RenderAction = Callable[[str, str | None], str]
"""(action, the expert's thought if it has one) → what the assistant writes to do it."""

_FROM = {role: speaker for speaker, role in SPEAKERS.items()}

_SCHEMA = pa.schema(
    [
        ("item_id", pa.string()),
        ("conversations", pa.list_(pa.struct([("from", pa.string()), ("loss", pa.bool_()), ("value", pa.string())]))),
        ("return", pa.float64()),
        ("success", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Demonstration:
    """One task as the demonstrator played it. The last message is the assistant's last action."""

    item_id: str
    """The task; of a conversation that names none, where it stands."""
    messages: tuple[Message, ...]
    episode_return: float | None = None
    """None where a file does not say; so is `success`."""
    success: bool | None = None


def demonstrate(
    env_name: str,
    tasks: Sequence[Task],
    error_rate: float,
    seed: int,
    options: Mapping[str, Any] | None = None,
    *,
    render_prompt: RenderPrompt,
    render_action: RenderAction,
    observation_role: str = "user",
    max_turns: int = 64,
    count: int | None = None,
) -> list[Demonstration]:
    """Play the tasks in this process: each action is the expert's, or with chance `error_rate` a random one.

    Thoughts are always the expert's: an error is a slip of the hand.

    `count` demonstrations are made, by default one of each task; a task that is played again meets other errors. What
    happens in a task depends on `seed`, the task and how often it was played, not on which other tasks are played.
    """
    if not 0 <= error_rate <= 1:
        raise UserError(f"the demonstrator's error rate is {error_rate}", "It is a share between 0 and 1.")
    world = make_environment(env_name, **(options or {}))
    try:
        return [
            _play(
                world,
                task,
                _Demonstrator(error_rate, f"demonstration {seed} {index // len(tasks)} {task.item_id}"),
                max_turns,
                render_prompt,
                render_action,
                observation_role,
            )
            for index, task in enumerate(islice(cycle(tasks), len(tasks) if count is None else count))
        ]
    finally:
        world.close()


@dataclass(frozen=True)
class _Demonstrator:
    """An expert that errs. Its chance at a turn comes from a stable hash, never from what was drawn before."""

    error_rate: float
    seed: str

    def act(self, world: Environment, turn: int) -> str:
        if self._uniform(turn, "err") < self.error_rate:
            return self._err(world, self._uniform(turn, "which"))
        action = world.expert_action()
        if action is None:
            raise UserError(
                f"{world.name} knows no expert action, so it cannot be demonstrated",
                "Give it an expert_action(), or train without a warm start (warm_start.enabled=false).",
            )
        return action

    def _err(self, world: Environment, uniform: float) -> str:
        try:
            return world.random_action(uniform)
        except NotImplementedError as error:
            raise UserError(
                f"{error}, so its demonstrator cannot err",
                "Give it a random_action(), or demonstrate without errors (warm_start.error_rate=0).",
            ) from error

    def _uniform(self, turn: int, purpose: str) -> float:
        return (stable_hash(f"{self.seed} {turn} {purpose}") >> 11) / 2**53


def _play(
    world: Environment,
    task: Task,
    demonstrator: _Demonstrator,
    max_turns: int,
    render_prompt: RenderPrompt,
    render_action: RenderAction,
    observation_role: str,
) -> Demonstration:
    observation = world.reset(task)
    messages = list(render_prompt(task.prompt or world.instructions(), observation.text))
    episode_return = 0.0
    success = False
    for turn in range(max_turns):
        action = demonstrator.act(world, turn)
        answer = render_action(action, world.expert_thought())
        messages.append({"role": "assistant", "content": answer, "loss": True})
        result = world.step(action)
        episode_return += result.reward
        success = result.success
        if result.done:
            break
        if turn + 1 < max_turns:
            messages.append({"role": observation_role, "content": result.observation.text})
    return Demonstration(task.item_id, tuple(messages), episode_return, success)


def texts(demonstrations: Iterable[Demonstration]) -> Iterator[str]:
    """Everything that is said in them: what a tokenizer is trained on."""
    for demonstration in demonstrations:
        for message in demonstration.messages:
            yield message["content"]


def write_demonstrations(
    path: Path, demonstrations: Sequence[Demonstration], made_from: Mapping[str, Any] | None = None
) -> None:
    """Write demonstrations to a parquet file; `made_from` (world, seed, error rate, …) is kept in its metadata."""
    rows = [
        {
            "item_id": demonstration.item_id,
            "conversations": [_to_agenttraj(message) for message in demonstration.messages],
            "return": demonstration.episode_return,
            "success": demonstration.success,
        }
        for demonstration in demonstrations
    ]
    write_rows(path, rows, _SCHEMA, {**(made_from or {}), "version": __version__})


def read_demonstrations(path: Path) -> list[Demonstration]:
    """The conversations of a file: JSON, JSON lines or parquet, in AgentTraj's form or as chat messages."""
    demonstrations = [
        Demonstration(
            item_id=str(where if record.get("item_id") is None else record["item_id"]),
            messages=messages_of(where, record),
            episode_return=record.get("return"),
            success=record.get("success"),
        )
        for where, record in read_records(Path(path))
    ]
    if not demonstrations:
        raise UserError(f"{path} has no conversations.")
    return demonstrations


def _to_agenttraj(message: Message) -> dict[str, Any]:
    return {"from": _FROM[message["role"]], "loss": message.get("loss"), "value": message["content"]}
