"""Actors that die or fail once, in the middle of a run: chosen by `trainer.workers.actor=…/dying_workers.py:NAME`."""

import os
from pathlib import Path

from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker
from openmanus_rl.workers.dispatch import Dispatch, dispatch


class DyingActor(ActorWorker):
    """Its process ends in the third update, unless a file says that this has happened already."""

    updates = 0

    @dispatch(Dispatch.SAME)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        self.updates += 1
        tombstone = Path(os.environ["OPENMANUS_TEST_TOMBSTONE"])
        if self.updates == 3 and not tombstone.exists():
            tombstone.touch()
            os._exit(1)
        return super().update_actor(data, seed)


class FailingActor(ActorWorker):
    """A mistake in its code."""

    @dispatch(Dispatch.SAME)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        raise ValueError("a mistake in the worker's own code")
