"""The order in which tasks are drawn: shuffled anew each epoch, and resumable from one number."""

from collections.abc import Sequence
from typing import Any, Protocol

from openmanus_rl.envs.base import stable_hash
from openmanus_rl.errors import UserError


class Sampler(Protocol):
    """Draws task indices without end, and goes on where a saved one stopped."""

    @property
    def epoch(self) -> int: ...

    def next(self, k: int) -> list[int]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


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


class MixedSampler:
    """Draws from several lists of tasks that stand one after another, by weight; each in the order of its own sampler.

    The next draw goes to the list that is farthest behind its share, so that after any number of draws none is more
    than about one draw away from it.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        self._samplers = [TaskSampler(size, seed) for size in sizes]
        self._starts = [sum(sizes[:number]) for number in range(len(sizes))]
        self._weights = list(weights)

    @property
    def epoch(self) -> int:
        """The epoch of the list that is least far."""
        return min(sampler.epoch for sampler in self._samplers)

    def next(self, k: int) -> list[int]:
        """The next `k` indices into all lists together."""
        return [self._draw() for _ in range(k)]

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self._weights, "lists": [sampler.state_dict() for sampler in self._samplers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved position, which means something only for the same worlds, tasks, weights and seed."""
        if state.get("weights") != self._weights:
            raise UserError(
                f"the task order was saved with the weights {state.get('weights')}, but this run has {self._weights}",
                "Resume with the worlds and weights of the saved run, or start a new run (trainer.resume=never).",
            )
        for sampler, saved in zip(self._samplers, state["lists"], strict=True):
            sampler.load_state_dict(saved)

    def _draw(self) -> int:
        due = [(one.position + 1) / weight for one, weight in zip(self._samplers, self._weights, strict=True)]
        which = due.index(min(due))
        return self._starts[which] + self._samplers[which].next(1)[0]
