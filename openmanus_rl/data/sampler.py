"""The order in which tasks are drawn: shuffled anew each epoch, and resumable from one number."""

from typing import Any

from openmanus_rl.envs.base import stable_hash
from openmanus_rl.errors import UserError


class TaskSampler:
    """Draws task indices without end. Each epoch is a permutation that depends on (seed, epoch) only.

    So every task comes once per epoch, and a resumed sampler goes on exactly where the saved one stopped.
    """

    def __init__(self, n_tasks: int, seed: int) -> None:
        if n_tasks < 1:
            raise UserError("there are no tasks to draw from", "Build them with: openmanus-rl data build ENV")
        self.n_tasks = n_tasks
        self.seed = seed
        self.position = 0
        """Tasks drawn so far, over all epochs."""
        self._shuffled_epoch = 0
        self._order = self._permutation(0)

    @property
    def epoch(self) -> int:
        """The epoch that the next task belongs to."""
        return self.position // self.n_tasks

    def next(self, k: int) -> list[int]:
        """The next `k` task indices; a draw may reach into the next epoch."""
        return [self._draw() for _ in range(k)]

    def state_dict(self) -> dict[str, Any]:
        return {"n_tasks": self.n_tasks, "seed": self.seed, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved position, which means something only for the same tasks and seed."""
        for name, present in (("n_tasks", self.n_tasks), ("seed", self.seed)):
            if state[name] != present:
                raise UserError(
                    f"the task order was saved with {name}={state[name]}, but this run has {name}={present}",
                    "Resume with the data and the seed of the saved run, or start a new run (trainer.resume=never).",
                )
        self.position = state["position"]

    def _draw(self) -> int:
        if self.epoch != self._shuffled_epoch:
            self._shuffled_epoch = self.epoch
            self._order = self._permutation(self.epoch)
        index = self._order[self.position % self.n_tasks]
        self.position += 1
        return index

    def _permutation(self, epoch: int) -> list[int]:
        # Sorting by a hash gives the same order under every version of Python and numpy.
        return sorted(range(self.n_tasks), key=lambda index: stable_hash(f"order {self.seed} {epoch} {index}"))
