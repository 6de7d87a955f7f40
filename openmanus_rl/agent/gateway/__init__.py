"""An OpenAI-compatible endpoint in front of any engine, which records each call as a turn.

An agent written elsewhere talks to it as to any other, and what it said and was answered can be trained on.
"""

from openmanus_rl.agent.gateway.program import Program, ProgramAgent
from openmanus_rl.agent.gateway.recording import Recording
from openmanus_rl.agent.gateway.server import Gateway

__all__ = ["Gateway", "Program", "ProgramAgent", "Recording"]
