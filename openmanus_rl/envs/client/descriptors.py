"""How each of AgentGym's servers is spoken to: one descriptor per family, and no code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Descriptor:
    """One family's wire format, its rewards, and what an agent is told at the start."""

    reset_key: str
    """The number in a reset that names the task: the n of item `<env>_<n>`."""
    success_at: float
    """An episode that ended is a success if its rewards add up to at least this."""
    success_rule: str
    instructions: str
    """AgentGym's servers send none."""
    prefix: str = ""
    id_key: str = "id"
    create_body: Mapping[str, Any] | None = None
    first_observation_keys: tuple[str, ...] = ("observation",)
    """What of a reset's answer is shown to the agent, one below the other."""
    reward_key: str = "reward"
    reward_is_total: bool = False
    """Whether the server sends the sum so far; a step's reward is then what it added."""
    has_close: bool = False


DESCRIPTORS: Mapping[str, Descriptor] = {
    "textcraft": Descriptor(
        reset_key="data_idx",
        create_body={},
        has_close=True,
        success_at=1.0,
        success_rule="the goal item was crafted",
        instructions=(
            "Craft the goal item. The recipes you may use are listed; what no recipe makes can be fetched. "
            "Actions: get [number] [item], craft [number] [item] using [number] [item], ..., inventory."
        ),
    ),
    "maze": Descriptor(
        reset_key="game",
        prefix="/maze",
        success_at=1.0,
        success_rule="the goal was reached",
        instructions=(
            "Reach the goal in as few steps as you can. A position is a row, counted downwards, and a column, counted "
            "to the right. Actions: move up, move down, move left, move right."
        ),
    ),
    "wordle": Descriptor(
        reset_key="seed",
        prefix="/wordle",
        success_at=1.0,
        success_rule="the hidden word was guessed",
        instructions=(
            "Guess the hidden word of five letters in six tries. Each guess is answered letter by letter: g is in the "
            "word at this place, y is in the word at another place, b is not in the word. "
            "Action: five letters with spaces between them, such as c r a n e."
        ),
    ),
    "babyai": Descriptor(
        reset_key="data_idx",
        reward_key="score",
        reward_is_total=True,
        has_close=True,
        success_at=0.01,
        success_rule="the goal was reached, however many steps it took",
        instructions=(
            "Reach the goal in a world of rooms, doors and objects. "
            "Actions: turn left, turn right, move forward, go to [object] [number], pickup [object] [number], "
            "go through [door] [number], toggle and go through [door] [number], toggle, drop, check available actions."
        ),
    ),
    "sciworld": Descriptor(
        reset_key="data_idx",
        reward_key="score",
        reward_is_total=True,
        has_close=True,
        first_observation_keys=("task_description", "observation"),
        success_at=100.0,
        success_rule="the score reached 100",
        instructions=(
            "Do the task in a simulated laboratory. Actions: open [thing], close [thing], activate [thing], "
            "deactivate [thing], connect [thing] to [thing], disconnect [thing], use [thing] on [thing], look around, "
            "look at [thing], look in [thing], read [thing], move [thing] to [thing], pick up [thing], "
            "put down [thing], pour [thing] into [thing], dunk [thing] into [thing], mix [thing], go to [place], "
            "eat [thing], flush [thing], focus on [thing], wait, wait1, task, inventory."
        ),
    ),
}
