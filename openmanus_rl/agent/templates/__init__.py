"""Action templates, one file each; `agent.template` names one, or a user's own as module:name."""

from openmanus_rl.agent.templates import agentgym, code, function_call, react, search, tags  # noqa: F401 - they register
from openmanus_rl.agent.templates.base import TEMPLATES, ActionTemplate, ParsedAction, find_template, invalid
from openmanus_rl.agent.templates.react import create_react_prompt

__all__ = ["TEMPLATES", "ActionTemplate", "ParsedAction", "create_react_prompt", "find_template", "invalid"]
