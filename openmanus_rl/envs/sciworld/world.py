"""ScienceWorld as a world: one task of one variation, played in a simulator borrowed for the episode."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Observation,
    Split,
    StepResult,
    Task,
)
from openmanus_rl.envs.items import pick
from openmanus_rl.envs.sciworld.pool import GOLD, GOLD_SECONDS, POOL
from openmanus_rl.envs.sciworld.simulator import Answer, Simulator, check_requirements
from openmanus_rl.envs.sciworld.tasks import (
    ScienceTask,
    check_names,
    read_item_id,
    task_of_number,
    variations,
)
from openmanus_rl.errors import UserError

_THING = r"\S(?:.*\S)?"


def _form(shown: str) -> ActionForm:
    """`pour X into Y` as a form: its words to the letter, with anything for the things."""
    words = [_THING if word.isupper() else word for word in shown.split()]
    return ActionForm(shown, r"\s+".join(words))


GRAMMAR = ActionGrammar(
    (
        *map(
            _form,
            (
                "open X",
                "close X",
                "activate X",
                "deactivate X",
                "connect X to Y",
                "disconnect X",
                "use X on Y",
                "look around",
                "look at X",
                "examine X",
                "look in X",
                "read X",
                "move X to Y",
                "pick up X",
                "put down X",
                "pour X into Y",
                "dunk X into Y",
                "mix X",
                "go to X",
                "eat X",
                "flush X",
                "focus on X",
                "wait",
                "wait1",
                "task",
                "inventory",
            ),
        ),
        ActionForm("0", "[0-9]{1,3}"),
    )
)
"""The simulator's actions; it understands a few other words for them too, such as `take X`. A number answers its
question which of several things is meant."""

NOT_UNDERSTOOD = "No known action matches that input."

_LOOKS = ("look", "inventory", "task", "help", "objects")
"""How actions begin that change nothing and take no time."""


@dataclass
class _Episode:
    task: ScienceTask
    description: str
    simulator: Simulator | None
    """None once the episode is over, and the simulator free for others."""
    last: Answer
    actions: list[tuple[str, bool]] = field(default_factory=list)
    """What was done, and whether it certainly changed nothing."""
    over: bool = False


class SciWorld(Environment):
    """An experiment or a search in a house with a kitchen, a workshop, a greenhouse and more, simulated in detail.

    Things are opened, heated, mixed, connected, measured and carried about; what a task is about must be named with
    `focus on X`. A name that fits several things is answered with a question; a number answers it. Each part of the
    task pays points, 100 in all; focusing on the wrong thing brings the score to -100 and ends the episode. After
    `max_steps` turns the episode is cut.

    Options: `tasks` (some of the thirty task types; unset: all), `max_steps`, `simplifications` (ScienceWorld's own,
    such as `easy` or `teleportAction,openDoors`), `simulators` (how many episodes a process plays at a time, each in a
    Java process of its own).
    """

    name: ClassVar[str] = "sciworld"
    grammar: ClassVar[ActionGrammar] = GRAMMAR
    success_rule: ClassVar[str] = "the score reaches 100 within max_steps turns"
    score_range: ClassVar[tuple[float, float]] = (-100.0, 100.0)
    requirements: ClassVar[tuple[str, ...]] = ("scienceworld", "py4j")
    session_options: ClassVar[tuple[str, ...]] = ("max_steps",)
    sessions_at_once: ClassVar[int | None] = 16
    expert_seconds: ClassVar[float | None] = GOLD_SECONDS

    def __init__(
        self,
        tasks: str | Sequence[str] | None = None,
        max_steps: int = 200,
        simplifications: str = "",
        simulators: int = 16,
    ) -> None:
        self.tasks = check_names(tasks)
        if max_steps < 1:
            raise UserError(f"sciworld: max_steps is {max_steps}", "An episode needs at least one turn.")
        if simulators < 1:
            raise UserError(f"sciworld: simulators is {simulators}", "An episode needs one.")
        check_requirements()
        self.max_steps = max_steps
        self.simplifications = simplifications
        self.simulators = simulators
        vars(self)["sessions_at_once"] = simulators
        self._present: _Episode | None = None

    def instructions(self) -> str:
        return f"Do the science task. Focus on what it is about. Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, tasks: Sequence[str] | None = None, **options: Any) -> Iterator[str]:
        """ScienceWorld's own splits, the task types taking turns, so that the first items are of all types."""
        names = check_names(tasks)
        rows = [[f"{name}-{number}" for number in variations(name, split)] for name in names]
        for turn in range(max(map(len, rows))):
            yield from (row[turn] for row in rows if turn < len(row))

    def item_of_number(self, number: int) -> str:
        """AgentGym's numbers."""
        return task_of_number(number).item_id

    def reset(self, task: Task) -> Observation:
        science = read_item_id(task.item_id)
        self.close()
        simulator = POOL.borrow(self.simulators)
        try:
            simulator.load(science, self.simplifications)
            description = simulator.said("getTaskDescription")
            seen = simulator.step("look around").text
        except BaseException:
            POOL.give_back(simulator)
            raise
        self._present = _Episode(science, description, simulator, Answer(seen))
        return Observation(f"{description}\n{seen}")

    def step(self, action: str) -> StepResult:
        episode = self._episode
        if episode.over:
            raise EpisodeOver(f"{episode.task.item_id} is over; call reset")
        before, answer = episode.last, self._simulator.step(action)
        understood = answer.text != NOT_UNDERSTOOD
        known = understood or self.grammar.parse(action)
        info = {} if known else {"invalid": f"not one of {self.grammar.describe()}"}
        episode.last = answer
        episode.actions.append((action, not understood or action.strip().lower().startswith(_LOOKS)))
        truncated = not answer.completed and len(episode.actions) >= self.max_steps
        episode.over = answer.completed or truncated
        if episode.over:
            self._release()
        reward = float(answer.score - before.score)
        return StepResult(Observation(answer.text), reward, answer.completed, truncated, answer.score >= 100, info)

    def close(self) -> None:
        self._release()
        self._present = None

    @property
    def task_name(self) -> str:
        return self._episode.task.name

    @property
    def variation(self) -> int:
        return self._episode.task.variation

    @property
    def task_description(self) -> str:
        return self._episode.description

    @property
    def score(self) -> int:
        """The points so far."""
        return self._episode.last.score

    def action_hint(self) -> dict[str, list[str]]:
        """The forms of actions, and the names of things that can be seen."""
        simulator = self._simulator
        return {
            "possible_actions": simulator.listed("getPossibleActions"),
            "possible_objects": simulator.listed("getPossibleObjects"),
        }

    def goals(self) -> dict[str, str]:
        """Which parts of the task are done. Names them all, so it is nothing for the agent that does the task."""
        return {"goals": self._simulator.said("getGoalProgressStr")}

    def detail(self) -> dict[str, Any]:
        """Where the episode stands."""
        episode = self._episode
        return {
            "task_name": episode.task.name,
            "var_num": episode.task.variation,
            "task_description": episode.description,
            "observation": episode.last.text,
            "score": episode.last.score,
            "done": episode.over,
            "deleted": False,
        }

    def difficulty(self) -> str:
        """The kind of the task, such as `boil`."""
        return self.task_name

    def expert_action(self) -> str | None:
        """The next action of the simulator's gold path; past its end, `wait1`, since its effects may be under way.

        Looking about does not matter; once something else was done, the path is lost and the expert knows nothing.
        """
        episode = self._episode
        path = GOLD.of(episode.task, self.simplifications)
        done = 0
        for action, idle in episode.actions:
            if done < len(path) and action == path[done]:
                done += 1
            elif not idle and done < len(path):
                return None
        return path[done] if done < len(path) else "wait1"

    def random_action(self, uniform: float) -> str:
        """Any action that the simulator holds valid, but for focusing, which mostly ends the episode at once."""
        valid = sorted(self._simulator.listed("getValidActionObjectCombinations"))  # it lists them in any order
        return pick([action for action in valid if not action.startswith(("focus", "reset"))], uniform)

    def render(self) -> str:
        episode = self._episode
        if episode.simulator is None:
            return f"{episode.description}\nOver, with a score of {episode.last.score}."
        seen, carried = (episode.simulator.said(ask) for ask in ("freeActionLook", "freeActionInventory"))
        return f"{episode.description}\nScore {episode.last.score}.\n{seen}\n{carried}"

    @property
    def _episode(self) -> _Episode:
        if self._present is None:
            raise EpisodeOver("sciworld: no episode has begun; call reset")
        return self._present

    @property
    def _simulator(self) -> Simulator:
        simulator = self._episode.simulator
        if simulator is None:
            raise EpisodeOver(f"{self._episode.task.item_id} is over; call reset")
        return simulator

    def _release(self) -> None:
        if self._present is not None and self._present.simulator is not None:
            POOL.give_back(self._present.simulator)
            self._present.simulator = None
