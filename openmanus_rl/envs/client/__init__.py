"""Clients that play worlds behind HTTP: ours (`NativeClient`) and AgentGym's (`AgentGymClient`)."""

from openmanus_rl.envs.client.agentgym import AgentGymClient
from openmanus_rl.envs.client.base import EnvFailure, EnvironmentClient, EnvTimeout, Handle, Patience
from openmanus_rl.envs.client.native import NativeClient
from openmanus_rl.envs.client.remote import make_client

__all__ = [
    "AgentGymClient",
    "EnvFailure",
    "EnvTimeout",
    "EnvironmentClient",
    "Handle",
    "NativeClient",
    "Patience",
    "make_client",
]
