"""SqlGym: answer a question about a database with one SQL query."""

from openmanus_rl.envs.sqlgym.world import SqlGym

__all__ = ["SqlGym"]
