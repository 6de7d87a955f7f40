"""OpenManus-RL: reinforcement learning for language-model agents in interactive environments."""

__version__ = "0.1.0"
