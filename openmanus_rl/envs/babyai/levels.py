"""The forty levels of BabyAI that AgentGym plays, as `minigrid` makes them.

`minigrid` is imported when the first level is made, so that the world can be listed without it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from openmanus_rl.errors import UserError

_NAMES = """
GoToRedBallGrey GoToRedBall GoToRedBallNoDists GoToObjS6 GoToLocalS8N7 GoToObjMazeS7 GoToImpUnlock GoToSeqS5R2
GoToRedBlueBall GoToDoor GoToObjDoor Open OpenRedDoor OpenDoorLoc OpenRedBlueDoorsDebug OpenDoorsOrderN4Debug Pickup
UnblockPickup PickupLoc PickupDistDebug PickupAbove PutNextLocalS6N4 PutNextS7N4Carrying Unlock UnlockLocalDist KeyInBox
UnlockPickupDist BlockedUnlockPickup UnlockToUnlock ActionObjDoor FindObjS7 KeyCorridorS6R3 OneRoomS20 MoveTwoAcrossS8N9
SynthS5R2 SynthLoc SynthSeq MiniBossLevel BossLevel BossLevelNoUnlock
"""
LEVELS = tuple(_NAMES.split())
"""In AgentGym's order: item n is level n modulo forty, with the seed n divided by forty."""

Level = Any
"""An environment of `minigrid`, which has no types of its own."""
Cell = tuple[int, int]
"""Column from the left, row from the top."""


def check_requirements() -> None:
    """An error with the line that installs what is missing."""
    _level_class(LEVELS[0])


def make_level(name: str, seed: int) -> Level:
    """A level at its start."""
    kind, arguments = _level_class(name)
    level = kind(**arguments)
    level.reset(seed=seed)
    return level


@lru_cache
def _level_class(name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class of a level and its arguments: `minigrid`'s own, which computes no picture at each step."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
        from minigrid.envs.babyai.core import roomgrid_level
    except ImportError as error:
        raise UserError(
            "babyai needs the package minigrid, which is not installed here.", "openmanus-rl env install babyai"
        ) from error
    vars(roomgrid_level)["print"] = _say_nothing  # it tells of every mission that it throws away
    spec = next(spec for spec in gymnasium.registry.values() if spec.id.startswith(f"BabyAI-{name}-v"))
    made_by: Any = load_env_creator(str(spec.entry_point))
    return type(f"Blind{name}", (made_by,), {"gen_obs": _no_picture}), dict(spec.kwargs)


def _say_nothing(*_: object) -> None:
    pass


def _no_picture(_: Level) -> dict[str, Any]:
    return {}


def position(level: Level) -> Cell:
    """Where the agent stands."""
    return int(level.agent_pos[0]), int(level.agent_pos[1])


def things(level: Level) -> Iterator[tuple[Cell, Any]]:
    """All that is no wall, row by row."""
    width = level.grid.width
    for index, thing in enumerate(level.grid.grid):
        if thing is not None and thing.type != "wall":
            yield (index % width, index // width), thing


def name_of(thing: Any) -> str:
    """`red ball`, `blue closed door`."""
    if thing.type != "door":
        return f"{thing.color} {thing.type}"
    return f"{thing.color} {'locked' if thing.is_locked else 'open' if thing.is_open else 'closed'} door"


def content_of(level: Level) -> str:
    """All that makes a level at its start differ from another."""
    walls = "".join("#" if thing is not None and thing.type == "wall" else "." for thing in level.grid.grid)
    there = "; ".join(f"{cell} {_whole_name(thing)}" for cell, thing in things(level))
    carried = _whole_name(level.carrying) if level.carrying else "nothing"
    return f"{level.mission} | {position(level)} {level.agent_dir} {carried} | {level.grid.width} {walls} | {there}"


def _whole_name(thing: Any) -> str:
    inside = getattr(thing, "contains", None)
    return f"{name_of(thing)} with {name_of(inside)}" if inside else name_of(thing)


def actions_asked(instruction: Any) -> list[Any]:
    """The actions that a mission is made of, in the order of its words."""
    if hasattr(instruction, "instr_a"):
        return [*actions_asked(instruction.instr_a), *actions_asked(instruction.instr_b)]
    return [instruction]


def can_be_won(level: Level) -> bool:
    """Whether the mission can be done at all.

    Where two doors must be opened in order, and no other door meanwhile, `minigrid` takes the first door for the second
    one too as soon as it opens, and calls the mission failed.
    """
    asked = actions_asked(level.instrs)
    return len(asked) == 1 or not all(getattr(action, "strict", False) for action in asked)
