"""A whole world in one small class: copy this file to make your own.

./train_grpo.sh --env_name examples/corridor_world.py:Corridor
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from openmanus_rl.envs import ActionForm, ActionGrammar, Environment, Observation, StepResult, Task
from openmanus_rl.envs.base import EpisodeOver, Split, split_of
from openmanus_rl.envs.items import item_number, pick
from openmanus_rl.errors import UserError


class Corridor(Environment):
    """A row of cells, and a lamp in one of them. Walk `left` or `right` until you stand under the lamp.

    What is seen is `cell 3 lamp 7`. Reaching the lamp pays 1 and ends the episode; what is not an action costs 0.05.
    After `2 * length` turns the episode is cut. Item `corridor_<n>` is one start and one lamp, for ever.
    """

    name: ClassVar[str] = "corridor"
    grammar: ClassVar[ActionGrammar] = ActionGrammar((ActionForm("left", "left"), ActionForm("right", "right")))
    success_rule: ClassVar[str] = "the walker stands under the lamp within 2 * length turns"
    score_range: ClassVar[tuple[float, float]] = (-0.8, 1.0)

    def __init__(self, length: int = 8) -> None:
        if length < 2:
            raise UserError(f"corridor: length is {length}", "A corridor has at least 2 cells.")
        self.length = length
        self.over = True

    def instructions(self) -> str:
        return f"Walk to the lamp. Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """Every pair of a start and a lamp; what a task contains decides its split, so no split shares one."""
        length = cls(**options).length
        for number in range(length * length):
            start, lamp = divmod(number, length)
            if start != lamp and split_of(f"corridor {length} {start} {lamp}") == split:
                yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self.cell, self.lamp = divmod(item_number(self.name, task.item_id), self.length)
        if self.cell >= self.length or self.cell == self.lamp:
            raise UserError(f"{task.item_id} is not a task in a corridor of {self.length} cells")
        self.turns = 0
        self.over = False
        return self._seen()

    def step(self, action: str) -> StepResult:
        if self.over:
            raise EpisodeOver("corridor: the episode is over; call reset")
        self.turns += 1
        match = self.grammar.parse(action)
        if match is not None:
            self.cell += 1 if match[0].lower() == "right" else -1
            self.cell = min(max(self.cell, 0), self.length - 1)
        success = self.cell == self.lamp
        truncated = not success and self.turns >= 2 * self.length
        self.over = success or truncated
        reward = float(success) if match is not None else -0.05
        info = {} if match is not None else {"invalid": f"not one of {self.grammar.describe()}"}
        return StepResult(self._seen(), reward, terminated=success, truncated=truncated, success=success, info=info)

    def expert_action(self) -> str:
        return "right" if self.cell < self.lamp else "left"

    def random_action(self, uniform: float) -> str:
        return pick(("left", "right"), uniform)

    def state_key(self) -> str:
        return f"{self.length} {self.cell} {self.lamp}"

    def _seen(self) -> Observation:
        return Observation(f"cell {self.cell} lamp {self.lamp}")
