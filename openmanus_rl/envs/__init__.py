"""Worlds: what they are, which ones there are, the HTTP service that serves them and the client that plays them.

This package knows no models, no tokens and no torch.
"""

from openmanus_rl.envs.base import ActionForm, ActionGrammar, Environment, Observation, StepResult, Task
from openmanus_rl.envs.registry import ENVIRONMENTS, make_environment

__all__ = [
    "ENVIRONMENTS",
    "ActionForm",
    "ActionGrammar",
    "Environment",
    "Observation",
    "StepResult",
    "Task",
    "make_environment",
]
