"""Whether a world keeps the promises that training relies on: one small function for each of them.

A check is a function of the `Subject`. It returns what it saw, raises `CheckFailed` with the promise that is broken, or
`NotChecked` with why it cannot tell.
"""

from openmanus_rl.envs.check.run import CHECKS, FAST_CHECKS, Check, CheckResult, check_server, check_world
from openmanus_rl.envs.check.subject import CheckFailed, NotChecked, Subject

__all__ = [
    "CHECKS",
    "FAST_CHECKS",
    "Check",
    "CheckFailed",
    "CheckResult",
    "NotChecked",
    "Subject",
    "check_server",
    "check_world",
]
