"""ALFWorld's published games (`game.tw-pddl`), played by TextWorld's engine.

A directory of games holds ALFWorld's own: `train`, `valid_seen`, `valid_unseen` and others, with one directory per task
and trial beneath. A game's item id is its path there, so it names one game for ever.
"""

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from openmanus_rl.envs.alfworld.generate import TASK_TYPES
from openmanus_rl.envs.alfworld.household import GRAMMARS
from openmanus_rl.envs.base import Split
from openmanus_rl.envs.given_files import lacking, read_json
from openmanus_rl.errors import UserError

GAME = "game.tw-pddl"
FOLDERS: Mapping[Split, str] = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}

PLAN_SECONDS = 600.0
"""How long the engine's planner may take; where something is to be cleaned, heated or cooled, it often takes 20 s."""

_PARTS = ("pddl_domain", "grammar", "pddl_problem")


class PublishedGame:
    """One game file being played. Putting something down is understood in the words of ALFWorld 0.3 and 0.4 alike."""

    def __init__(self, engine: Any, path: Path) -> None:
        """`engine` is a `new_engine`, or one whose last game is done with."""
        written = read_json(path, "alfworld", "games_dir", dict)
        for part in _PARTS:
            if part not in written:
                raise UserError(f"alfworld: {path} has no {part}.", "It is no whole game: fetch or generate it again.")
        self._engine = engine
        engine.load(str(path))
        self._name_things()
        self._state = self._engine.reset()
        self._plan: list[str] = []
        """What is left of the expert's plan, as long as it is followed."""

    def begin(self) -> str:
        """The room and the task, without the game's greeting."""
        return "\n".join(self._state["feedback"].strip().split("\n\n")[1:])

    def act(self, action: str) -> str | None:
        """Do the action; what is answered, or None if it is none of this world's."""
        command = self._in_the_games_words(action)
        if command is None:
            return None
        self._plan = self._plan[1:] if self._plan[:1] == [command] else []
        self._state, _, _ = self._engine.step(command)
        text: str = self._state["feedback"].strip()
        return text.partition(". ")[2] if text.startswith("You arrive at loc ") else text

    def actions(self) -> list[str]:
        """The engine's list."""
        return list(self._state["admissible_commands"])

    def won(self) -> bool:
        return bool(self._state["won"])

    def expert_action(self) -> str | None:
        """The next step of a plan by the engine, which is made only here since it takes long; None if there is none."""
        self._plan = self._plan or list(self._engine._pddl_state.replan(self._engine._entity_infos) or ())
        return self._plan[0] if self._plan else None

    def _name_things(self) -> None:
        """Give everything ALFWorld's plain name in place of its identifier."""
        things = self._engine._entity_infos
        for identifier, name in plain_names(things).items():
            things[identifier].name = name

    def _in_the_games_words(self, action: str) -> str | None:
        command = " ".join(action.lower().split())
        possible = self.actions()
        if command in possible:
            return command
        match = GRAMMARS["put"].parse(command)
        if match is None:
            return None
        said = match.groupdict()
        if "put" not in said:
            return command
        forms = (f"put {said['put']} in/on {said['target']}", f"move {said['put']} to {said['target']}")
        return next((form for form in forms if form in possible), command)


def new_engine() -> Any:
    """TextWorld's engine. It plays one game after the other; each has a copy of the planner that is never unloaded."""
    try:
        textworld, envs = (importlib.import_module(name) for name in ("textworld", "textworld.envs"))
        return envs.PddlEnv(textworld.EnvInfos(feedback=True, won=True, admissible_commands=True))
    except ImportError as error:  # of the planner, only when an engine is made
        raise UserError(
            f"ALFWorld's game files need TextWorld and its planner, which are not installed here: {error}",
            "Install them with: openmanus-rl env install alfworld",
        ) from error


def import_engine() -> None:
    """Import TextWorld if it is here; the first game tells if it is not."""
    with suppress(ImportError):
        importlib.import_module("textworld.envs")


def game_ids(games_dir: Path, split: Split, task_types: Sequence[str] = TASK_TYPES) -> Iterator[str]:
    """The games of one of ALFWorld's own splits that are known to be solvable, in the order of their paths."""
    folder = games_dir / FOLDERS[split]
    if not folder.is_dir():
        raise UserError(
            f"{games_dir} has no directory {FOLDERS[split]} with games.",
            "env.options.games_dir is the directory that holds train, valid_seen and valid_unseen (json_2.1.1).",
        )
    for path in sorted(folder.rglob(GAME)):
        name = path.parent.relative_to(games_dir).as_posix()
        if task_type_of(name) in task_types and read_json(path, "alfworld", "games_dir", dict).get("solvable"):
            yield name


def game_path(games_dir: Path, item_id: str) -> Path:
    """The file of an item, which must lie inside the directory."""
    path = games_dir / item_id / GAME
    if not path.resolve().is_relative_to(games_dir.resolve()) or not path.is_file():
        raise UserError(
            f"there is no game {item_id!r} in {games_dir}",
            "An item id is the path of its game there, such as train/pick_and_place_simple-Mug-None-Desk-308/trial_T1.",
        )
    return path


def numbered_games(mappings: Iterable[Path]) -> list[str]:
    """AgentGym's numbers as item ids: its mapping files name task and trial, the training games before the others."""
    games = []
    for index, path in enumerate(mappings):
        folder = "train" if index == 0 else "valid_train"
        for place, record in enumerate(read_json(path, "alfworld", "mappings", list), 1):
            try:
                games.append(f"{folder}/{record['task_type']}/{record['task_id']}")
            except (KeyError, TypeError) as error:
                raise lacking(path, "alfworld", "mappings", place, error) from error
    return games


def task_type_of(item_id: str) -> str:
    """`pick_and_place_simple` of `train/pick_and_place_simple-Mug-None-Desk-308/trial_T1`."""
    return item_id.rstrip("/").split("/")[-2].partition("-")[0]


def plain_names(identifiers: Iterable[str]) -> dict[str, str]:
    """`cabinet 2` for `cabinet_bar__minus_01_…`: ALFWorld's names, numbered downwards in the order of identifiers."""
    ordered = sorted(identifiers)
    kinds = {name: _kind(name) for name in ordered}
    left = Counter(kind for kind in kinds.values() if kind is not None)
    names = {}
    for identifier in ordered:
        kind = kinds[identifier]
        if kind is None:
            names[identifier] = identifier
        else:
            names[identifier] = f"{kind} {left[kind]}"
            left[kind] -= 1
    return names


def _kind(identifier: str) -> str | None:
    kind, bar, rest = identifier.partition("_bar_")
    if not bar:
        return None
    return f"{kind}basin" if "basin" in rest and not kind.endswith("basin") else kind
