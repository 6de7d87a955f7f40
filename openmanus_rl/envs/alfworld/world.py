"""ALFWorld as a world: generated games by number, or published ones from a directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from openmanus_rl.envs.alfworld.game_files import (
    PLAN_SECONDS,
    PublishedGame,
    game_ids,
    game_path,
    import_engine,
    new_engine,
    numbered_games,
)
from openmanus_rl.envs.alfworld.generate import TASK_TYPES, make_game
from openmanus_rl.envs.alfworld.house import listed
from openmanus_rl.envs.alfworld.household import GRAMMARS, NOTHING, Household
from openmanus_rl.envs.alfworld.planner import next_action
from openmanus_rl.envs.base import (
    ActionGrammar,
    Environment,
    EpisodeOver,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
    stable_hash,
)
from openmanus_rl.envs.items import item_number, listed_names, pick
from openmanus_rl.errors import UserError, did_you_mean


@dataclass
class _Episode:
    item_id: str
    game: Household | PublishedGame
    turns: int = 0
    over: bool = False


class AlfWorld(Environment):
    """A room full of receptacles, some of them closed, and a task such as `put a clean mug in coffeemachine`.

    The player goes to receptacles, opens them, takes one thing at a time, cleans it at the sink, heats it in the
    microwave, cools it in the fridge, looks at it under a lamp, and puts it down. What cannot be done is answered with
    `Nothing happens.` Doing the task pays 1 and ends the episode; nothing else pays or costs. After `max_steps` turns
    the episode is cut.

    Options: `task_types` (some of ALFWorld's six; unset: all), `max_steps`, `wording` (`put`: `put mug 1 in/on desk 1`
    as ALFWorld 0.3 and AgentGym say, `move`: `move mug 1 to desk 1` as 0.4 does; both are understood), `list_actions`
    (add the possible actions to every observation), `games_dir` (play ALFWorld's published games from it), `mappings`
    (AgentGym's two files that number them, the training games first).
    """

    name: ClassVar[str] = "alfworld"
    grammar: ClassVar[ActionGrammar] = GRAMMARS["put"]
    success_rule: ClassVar[str] = "the task is done within max_steps turns"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    requirements: ClassVar[tuple[str, ...]] = ("textworld",)
    compilers: ClassVar[tuple[str, ...]] = ("cmake", "g++")

    def __init__(
        self,
        task_types: str | Sequence[str] | None = None,
        max_steps: int = 50,
        wording: str = "put",
        list_actions: bool = False,
        games_dir: str | None = None,
        mappings: str | Sequence[str] | None = None,
    ) -> None:
        for task_type in listed_names(task_types):
            if task_type not in TASK_TYPES:
                raise UserError(f"alfworld: task_types has {task_type!r}. {did_you_mean(task_type, TASK_TYPES)}")
        if max_steps < 1:
            raise UserError(f"alfworld: max_steps is {max_steps}", "An episode needs at least one turn.")
        if wording not in GRAMMARS:
            raise UserError(f"alfworld: there is no wording {wording!r}. {did_you_mean(wording, GRAMMARS)}")
        if mappings is not None and games_dir is None:
            raise UserError("alfworld: mappings is given without games_dir", "The mappings number published games.")
        for path in listed_names(mappings):
            if not Path(path).is_file():
                raise UserError(f"alfworld: there is no file at {path}", "Look at env.options.mappings.")
        vars(self)["grammar"] = GRAMMARS[wording]
        vars(self)["expert_seconds"] = PLAN_SECONDS if games_dir else None
        vars(self)["isolation"] = "process" if games_dir else "thread"  # TextWorld plays one game at a time
        self.task_types = listed_names(task_types) or TASK_TYPES
        self.max_steps = max_steps
        self.wording = wording
        self.list_actions = list_actions
        self.games_dir = Path(games_dir) if games_dir else None
        self.mappings = listed_names(mappings)
        self._engine: Any = None
        self._present: _Episode | None = None

    def instructions(self) -> str:
        shown = self.grammar.describe()
        return f"Do the household task. Carry one thing at a time. Actions, for example: {shown}."

    @classmethod
    def warm_up(cls, games_dir: str | None = None, **options: Any) -> None:
        """Import the engine of published games."""
        if games_dir:
            import_engine()

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """Generated games without end, or the published ones of ALFWorld's own split (validation is `valid_seen`)."""
        world = cls(**options)
        if world.games_dir:
            yield from game_ids(world.games_dir, split, world.task_types)
            return
        for number in count():
            if (
                TASK_TYPES[number % len(TASK_TYPES)] in world.task_types
                and split_of(make_game(number).content) == split
            ):
                yield f"{cls.name}_{number}"

    def item_of_number(self, number: int) -> str:
        """The game of that number in AgentGym's mappings; generated games have their numbers in their ids."""
        if not self.games_dir:
            return super().item_of_number(number)
        games = numbered_games(map(Path, self.mappings))
        if not 0 <= number < len(games):
            raise UserError(f"alfworld: no game has number {number}", "Give AgentGym's files as env.options.mappings.")
        return games[number]

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return self._observation(self._episode.game.begin())

    def step(self, action: str) -> StepResult:
        episode = self._episode
        if episode.over:
            raise EpisodeOver(f"{episode.item_id} is over; call reset")
        episode.turns += 1
        said = episode.game.act(action)
        info = {} if said is not None else {"invalid": f"not an action such as {self.grammar.describe()}"}
        success = episode.game.won()
        truncated = not success and episode.turns >= self.max_steps
        episode.over = success or truncated
        return StepResult(self._observation(said or NOTHING), float(success), success, truncated, success, info)

    def available_actions(self) -> list[str]:
        """All that can be done here, sorted."""
        return self._episode.game.actions()

    @property
    def task_type(self) -> str:
        """The task as ALFWorld names its directories: type, thing and place, and which trial."""
        episode = self._episode
        if isinstance(episode.game, PublishedGame):
            return "/".join(episode.item_id.split("/")[-2:])
        goal = episode.game.game.goal
        return f"{goal.task_type}-{goal.thing}-None-{goal.place}-{episode.game.game.room}/{episode.item_id}"

    def state_key(self) -> str | None:
        """The game and all that has changed in it, without the turns; a published game has no key."""
        game = self._episode.game
        if isinstance(game, PublishedGame):
            return None
        state = {**game.state(), "where": [(place, game.contents(place)) for place in game.game.receptacles]}
        return f"{stable_hash(game.game.content):016x} {stable_hash(repr(state)):016x}"

    def difficulty(self) -> str:
        """Which of ALFWorld's six types the task is of."""
        return self.task_type.partition("-")[0]

    def expert_action(self) -> str | None:
        """The next action of one who knows where everything is."""
        game = self._episode.game
        return game.expert_action() if isinstance(game, PublishedGame) else next_action(game)

    def random_action(self, uniform: float) -> str:
        """Any action that does something."""
        return pick(self.available_actions(), uniform)

    def snapshot(self) -> dict[str, Any]:
        episode = self._episode
        if isinstance(episode.game, PublishedGame):
            raise NotImplementedError("a published game of alfworld cannot be snapshotted")
        return {"item_id": episode.item_id, "turns": episode.turns, "over": episode.over, **episode.game.state()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        house = self._house(snapshot["item_id"])
        house.become(snapshot)
        self._present = _Episode(snapshot["item_id"], house, snapshot["turns"], snapshot["over"])

    def render(self) -> str:
        game = self._episode.game
        if isinstance(game, PublishedGame):
            return "\n".join(game.actions())
        lines = [f"{place}: {listed(game.contents(place))}" for place in game.game.receptacles]
        carried = game.holding or "nothing"
        return "\n".join(
            [*lines, f"At {game.at or 'the middle of the room'}, carrying {carried}.", game.game.goal.words]
        )

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = self._present = None

    @property
    def _episode(self) -> _Episode:
        if self._present is None:
            raise EpisodeOver("alfworld: no episode has begun; call reset")
        return self._present

    def _begin(self, item_id: str) -> None:
        game = self._published(self.games_dir, item_id) if self.games_dir else self._house(item_id)
        self._present = _Episode(item_id, game)

    def _published(self, games_dir: Path, item_id: str) -> PublishedGame:
        path = game_path(games_dir, item_id)
        self._present = None  # the engine leaves its game for the new one
        self._engine = self._engine or new_engine()
        return PublishedGame(self._engine, path)

    def _house(self, item_id: str) -> Household:
        return Household(make_game(item_number(self.name, item_id)), self.wording)

    def _observation(self, text: str) -> Observation:
        if not self.list_actions:
            return Observation(text)
        return Observation(f"{text}\nAVAILABLE ACTIONS: {','.join(self.available_actions())}")
