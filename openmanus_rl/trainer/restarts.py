"""A run that lost a process goes on from its last checkpoint by itself, a bounded number of times."""

from collections.abc import Iterator
from contextlib import contextmanager

from openmanus_rl.distributed.errors import RankLost
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import EngineLost
from openmanus_rl.tracking.console import RunConsole
from openmanus_rl.tracking.run_directory import RunDirectory


class Restarts:
    """How often a run was started anew, and whether it may be once more."""

    def __init__(self, limit: int, run: RunDirectory, console: RunConsole) -> None:
        self.limit = limit
        self.count = 0
        self._run = run
        self._console = console
        self._lost = True
        """Whether the last attempt ended by a loss; the first attempt is due in any case."""

    def attempt(self) -> bool:
        """Whether the run has to be tried (again)."""
        due, self._lost = self._lost, False
        return due

    @contextmanager
    def after_a_loss(self) -> Iterator[None]:
        """A loss in the block, of a rank or of all engines, makes the next attempt due; it is said and written down."""
        try:
            yield
        except (RankLost, EngineLost) as lost:
            if self.count == self.limit:
                raise UserError(
                    f"{lost}\nThe run was started anew {self.limit} times already (trainer.max_restarts).",
                    "Mend the cluster and call again; the run goes on from its last checkpoint.",
                ) from lost
            self.count += 1
            self._lost = True
            self._run.log_event("restarted", reason=str(lost), restart=self.count)
            self._console.note(f"{lost}; going on from the last checkpoint ({self.count} of {self.limit} restarts).")
