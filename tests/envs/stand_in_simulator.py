"""A stand-in for ScienceWorld's simulator, without Java: two actions matter, and that is all the science there is.

It keeps to the interface of `openmanus_rl.envs.sciworld.simulator.Simulator`. What the real one does is tested in
test_sciworld_real.py.
"""

from itertools import count

from openmanus_rl.envs.sciworld.simulator import Answer, SimulatorFailed
from openmanus_rl.envs.sciworld.tasks import ScienceTask

GOLD = ("look around", "open door to kitchen", "focus on substance")


class StandInSimulator:
    """`open door to kitchen` pays 40, then `focus on substance` the rest; `focus on air` fails; `crash` crashes."""

    numbers = count(1)
    alive: set["StandInSimulator"] = set()  # noqa: RUF012 - shared on purpose: who still runs

    def __init__(self, read_seconds: int = 25) -> None:
        self.pid = next(self.numbers)
        self.episodes = 0
        self.memory_bytes = 100 << 20
        self.alive.add(self)

    def load(self, task: ScienceTask, simplifications: str = "", *, gold: bool = False) -> None:
        self.episodes += 1
        self.task = task
        self.score = 0

    def step(self, action: str) -> Answer:
        if action == "crash":
            self.kill()
            raise SimulatorFailed("told to")
        told = {
            "look around": "This room is called the hallway.",
            "open door to kitchen": "The door is now open.",
            "focus on substance": "You focus on the substance.",
            "focus on air": "You focus on the air.",
            "open sesame": "It is not clear how to open that.",
        }
        self.score = {"open door to kitchen": 40, "focus on substance": 100, "focus on air": -100}.get(
            action, self.score
        )
        text = told.get(action, "No known action matches that input.")
        return Answer(text, self.score, self.score in (100, -100))

    def said(self, method: str, *arguments: str) -> str:
        return f"{method} of {self.task.item_id}"

    def listed(self, method: str) -> list[str]:
        return list(GOLD)

    def kill(self) -> None:
        self.memory_bytes = 0
        self.alive.discard(self)
