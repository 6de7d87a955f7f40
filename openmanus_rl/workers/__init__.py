"""The workers that come with the package; importing them registers them under their roles."""

from openmanus_rl.workers import actor, critic, rollout

__all__ = ["actor", "critic", "rollout"]
