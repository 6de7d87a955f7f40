"""Making a Gymnasium environment, naming its actions, and telling what it shows.

`gymnasium` is imported when the first environment is made.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from openmanus_rl.envs.base import ActionForm, ActionGrammar
from openmanus_rl.errors import UserError
from openmanus_rl.registry import load_object

ANY_TEXT = ActionGrammar((ActionForm("text", r"(?s).+"),))
REGISTERED = re.compile(r".*-v[0-9]+")


def make_gym(env_id: str, wrapper: str, arguments: Mapping[str, Any]) -> Any:
    """The environment called `env_id` by Gymnasium, or of a class at `module:Class`, within its wrapper."""
    gymnasium = _gymnasium()
    if not env_id:
        raise UserError(
            "gym: no environment is chosen.", "Name it: env.options.id=FrozenLake-v1, or a class as module:Class."
        )
    own = ":" in env_id and not REGISTERED.fullmatch(env_id)
    make = load_object(env_id, "Gymnasium environment") if own else partial(gymnasium.make, env_id)
    try:
        made = make(**arguments)
    except gymnasium.error.Error as error:
        raise UserError(f"gym: {error}", "Is the package that registers it installed?") from error
    except TypeError as error:
        raise UserError(
            f"gym: {env_id} cannot be made with {dict(arguments)}: {error}.",
            "env.options.make has the keyword arguments for making it.",
        ) from error
    return load_object(wrapper, "wrapper")(made) if wrapper else made


def grammar_of(space: Any, names: Sequence[str]) -> ActionGrammar:
    """The actions of a space: the names given, the numbers of a discrete one, or any text."""
    spaces = _gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        words = list(names) or [str(number) for number in range(int(space.n))]
        if len(words) != space.n or len({word.lower() for word in words}) != space.n:
            raise UserError(
                f"gym: actions is {words}", f"The environment has {space.n} actions: name each, differently."
            )
        return ActionGrammar(tuple(ActionForm(word, re.escape(word)) for word in words))
    if isinstance(space, spaces.Text):
        if names:
            raise UserError("gym: actions has no effect: this environment takes any text.", "Leave it out.")
        return ANY_TEXT
    raise UserError(
        f"gym: actions from {space} cannot be said in words.",
        "Give a wrapper whose action space is Discrete or Text: env.options.wrapper=module:function.",
    )


def teller(how: str) -> Callable[[Any, Any], str]:
    """What turns the environment and what it returned into text."""
    if how == "str":
        return lambda _, seen: str(seen)
    if how == "render":
        return lambda environment, _: str(environment.render())
    if ":" not in how:
        raise UserError(f"gym: observation is {how!r}", "It is str, render, or a function as module:function.")
    function = load_object(how, "observation function")
    return lambda _, seen: str(function(seen))


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError(
            "gym needs the package gymnasium, which is not installed here.", "openmanus-rl env install gym"
        ) from error
    return gymnasium
