"""Which role lives in which pool of processes (executor=ray), checked before anything starts."""

from collections.abc import Set

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError, did_you_mean

BUILT_IN = ("actor", "critic", "reference", "rollout")
"""The roles that the trainer itself calls; any other one in `trainer.workers` is a user's own."""


def needed_roles(config: RunConfig, requires: Set[str]) -> list[str]:
    """The roles of a run.

    With adapters the reference is the actor without them, and with critic.trunk=actor the critic is a part of it: those
    need no process.
    """
    roles = ["actor"]
    if "critic" in requires and config.critic.trunk == "own":
        roles.append("critic")
    if config.algorithm.kl.where != "none" and not config.model.lora.rank:
        roles.append("reference")
    roles += sorted(set(config.trainer.workers) - set(BUILT_IN))
    if config.trainer.executor == "ray":
        roles.append("rollout")
    return roles


def pool_of(config: RunConfig, role: str) -> str:
    """The pool a role lives in: the one that is named for it, else the first."""
    return config.cluster.roles.get(role, next(iter(config.cluster.pools)))


def check_places(config: RunConfig, requires: Set[str]) -> None:
    """Every role has a pool, and nothing is named that the run does not have."""
    roles, pools = needed_roles(config, requires), config.cluster.pools
    for role in config.trainer.workers:
        if role in BUILT_IN and role not in roles:
            raise UserError(f"trainer.workers.{role} has no effect: this run has no {role}.", "Remove it.")
    if config.trainer.executor != "ray":
        return
    if not pools:
        raise UserError("cluster.pools is empty: there is no process to run in.", "Name one: cluster.pools.main={}")
    for role, pool in config.cluster.roles.items():
        if role not in roles:
            raise UserError(
                f"cluster.roles.{role} has no effect: this run has no such role. {did_you_mean(role, roles)}"
            )
        if pool not in pools:
            raise UserError(f"cluster.roles.{role}={pool}: there is no such pool. {did_you_mean(pool, pools)}")
    idle = set(pools) - {pool_of(config, role) for role in roles}
    if idle:
        raise UserError(
            f"no role lives in cluster.pools.{sorted(idle)[0]}.",
            f"Remove it, or place one there: cluster.roles.rollout={sorted(idle)[0]}",
        )
