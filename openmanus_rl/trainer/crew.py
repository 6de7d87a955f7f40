"""The processes of a run, the workers in them, and the engine that samples: in this process, or on Ray."""

from collections.abc import Callable, Coroutine, Set
from typing import TYPE_CHECKING, Any

import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.distributed.processes import Processes, ThisProcess
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.inference.factory import has_own_weights, make_engine
from openmanus_rl.trainer.canary import largest_gap, tolerance
from openmanus_rl.trainer.places import needed_roles, pool_of
from openmanus_rl.trainer.roles import Roles
from openmanus_rl.workers.registry import find_worker

if TYPE_CHECKING:
    from openmanus_rl.distributed.ray_engine import RayRollout
    from openmanus_rl.distributed.ray_processes import RayProcesses

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs asynchronous work to its end, on the event loop that the engine is used from."""


class Crew:
    """Everybody who computes for a run."""

    roles: Roles
    engine: InferenceEngine

    def __init__(self, config: RunConfig, model_dir: str, requires: Set[str], say: Callable[[str], None]) -> None:
        self.config = config
        self.model_dir = model_dir
        self._say = say
        self._here = ThisProcess()
        self._pools: dict[str, RayProcesses] = {}
        self._rollout: RayRollout | None = None
        self._critic_on_actor = "critic" in requires and config.critic.trunk == "actor"
        try:
            self._gather(needed_roles(config, requires))
        except BaseException:
            self._release_pools()
            raise

    def sync_weights(self, run: Run, probe: list[int], version: int) -> float:
        """Give the engine the actor's weights as policy `version`; the largest log-prob gap on the probe."""
        run(self.engine.update_weights(None if self._shares_weights else self.roles.actor.weights(), version))
        # At temperature 1 whatever the rollout's is: the question is whether the weights are the same.
        expected = self.roles.actor.score(probe, 1.0)
        allowed = tolerance(self.config.rollout)
        return max(
            largest_gap(run(engine.score(probe)), expected, allowed, name)
            for name, engine in self.engine.replicas.items()
        )

    @property
    def _shares_weights(self) -> bool:
        """Whether the engine samples with the actor's own tensors: not while an update changes them under it.

        Nor with adapters, which an engine of its own has merged into its weights.
        """
        return self.roles.actor.local is not None and not has_own_weights(self.config)

    def mend(self) -> None:
        """Bring back engines that were lost since the last call."""
        if self._rollout is not None:
            self._rollout.repair()

    def close(self) -> None:
        """End the processes; the engine is closed by whoever runs its event loop."""
        self._release_pools()

    def _gather(self, roles: list[str]) -> None:
        groups = {role: self._group(role) for role in roles if role != "rollout"}
        actor = groups.pop("actor")
        self.roles = Roles(
            actor=actor,
            critic=actor if self._critic_on_actor else groups.pop("critic", None),
            reference=groups.pop("reference", None),
            own=groups,
        )
        self.engine = self._make_engine()

    def _group(self, role: str) -> WorkerGroup:
        needed = "actor_critic" if role == "actor" and self._critic_on_actor else role
        worker_cls = find_worker(self.config.trainer.workers.get(role, needed))
        if needed == "actor_critic" and not hasattr(worker_cls, "compute_values"):
            raise UserError(
                f"trainer.workers.actor={self.config.trainer.workers[role]} has no values: critic.trunk=actor.",
                "Make it a subclass of ActorCriticWorker, or set critic.trunk=own.",
            )
        return WorkerGroup(worker_cls, self._processes(role), role, model_dir=self.model_dir, config=self.config)

    def _processes(self, role: str) -> Processes:
        return self._here if self.config.trainer.executor == "inline" else self._pool(role)

    def _pool(self, role: str) -> "RayProcesses":
        from openmanus_rl.distributed.ray_processes import RayProcesses

        name = pool_of(self.config, role)
        if name not in self._pools:
            self._pools[name] = RayProcesses(name, self.config.cluster.pools[name], self.config.cluster)
        return self._pools[name]

    def _make_engine(self) -> InferenceEngine:
        if self.roles.actor.local is not None:
            if self.config.rollout.ahead:  # actor and engine compute at once, each with half of the threads
                torch.set_num_threads(max(1, self.config.trainer.threads // 2))
            shared = self.roles.actor.local.model if self._shares_weights else None
            return make_engine(self.config, self.model_dir, shared)
        from openmanus_rl.distributed.ray_engine import RayRollout

        worker_cls = find_worker(self.config.trainer.workers.get("rollout", "rollout"))
        self._rollout = RayRollout(
            worker_cls, self._pool("rollout"), self._say, model_dir=self.model_dir, config=self.config
        )
        return self._rollout

    def _release_pools(self) -> None:
        for processes in self._pools.values():
            processes.close()
        self._pools.clear()
