"""Workers that die or fail in the middle of a run: chosen by `trainer.workers.ROLE=…/dying_workers.py:NAME`."""

import os
from pathlib import Path
from typing import Any

from openmanus_rl.inference.base import Completion
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.rollout import RolloutWorker


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


class DyingRollout(RolloutWorker):
    """Its process ends in the 80th turn it samples, unless a file says that another's has."""

    turns = 0

    async def generate(self, *arguments: Any) -> Completion:
        self.turns += 1
        tombstone = Path(os.environ["OPENMANUS_TEST_TOMBSTONE"]).with_name("dead engine")
        if self.turns == 80 and not tombstone.exists():
            tombstone.touch()
            os._exit(1)
        return await super().generate(*arguments)
