"""The worker groups of a run, by role."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
from openmanus_rl.workers.actor_critic import ActorCriticWorker
from openmanus_rl.workers.critic import CriticWorker


@dataclass(frozen=True)
class Roles:
    """Who computes; critic and reference exist only where they are needed."""

    actor: WorkerGroup[ActorWorker]
    critic: WorkerGroup[CriticWorker] | WorkerGroup[ActorCriticWorker] | None
    """The actor's own group where the critic is a head on the actor's model: then it learns when the actor does."""
    reference: WorkerGroup[ReferenceWorker] | None
    """None where there is no KL, or where the actor without its adapters is the reference."""
    own: Mapping[str, WorkerGroup]
    """Roles of the user's own (`trainer.workers`): `enrich` is called on each batch before credit is given."""

    def reference_log_prob(self, batch: DataProto) -> DataProto:
        """`log_probs` under the model that reinforcement learning started from."""
        if self.reference is None:
            return self.actor.compute_reference_log_prob(batch)
        return self.reference.compute_log_prob(batch)

    def enrich(self, batch: DataProto) -> DataProto:
        """The batch with the columns that the user's own roles return; a column that is there is replaced."""
        for group in self.own.values():
            added = group.enrich(batch).batch
            for name in added.keys():  # noqa: SIM118 - a TensorDict iterates over rows
                batch.batch[name] = added[name]
        return batch

    def save(self, checkpoint: Path) -> None:
        """Everything that learns, into a checkpoint's directory; what is left for later is there after `saved`."""
        for group in self._learners():
            group.save(checkpoint)

    def saved(self) -> None:
        """Until everything that `save` began is written. It may be called while the groups do other things."""
        for group in self._learners():
            if hasattr(group.worker_cls, "saved"):
                group.saved()

    def load(self, checkpoint: Path) -> None:
        """Everything that learns, from a checkpoint's directory."""
        for group in self._learners():
            group.load(checkpoint)

    def _learners(self) -> list[WorkerGroup]:
        own = [group for group in self.own.values() if hasattr(group.worker_cls, "save")]
        apart = [self.critic] if self.critic is not None and self.critic is not self.actor else []
        return [self.actor, *apart, *own]
