"""The workers that come with the package; importing them registers them under their roles."""

from openmanus_rl.workers import actor, actor_critic, critic, rollout

__all__ = ["actor", "actor_critic", "critic", "rollout"]
