"""A Gymnasium environment as a world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

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
from openmanus_rl.envs.gym.making import ANY_TEXT, grammar_of, make_gym, teller
from openmanus_rl.envs.items import item_number, pick
from openmanus_rl.errors import UserError

_BARREN_RUN = 1_000
"""So many seeds in a row without a new first observation mean that there are no more."""


@dataclass
class _Episode:
    item_id: str
    total: float = 0.0
    turns: int = 0
    over: bool = False


class GymWorld(Environment):
    """Any environment of Gymnasium whose actions are texts or a handful of named ones. Item `gym_<n>` is its seed n.

    Options: `id` (`FrozenLake-v1`, or a class as `module:Class` or `path/to/file.py:Class`), `make` (keyword arguments
    for making it), `wrapper` (`module:function` that takes the environment and returns another), `actions` (names for
    the actions of a discrete space, in order; unset: their numbers), `observation` (`str`, `render` for environments
    that draw themselves in text, or `module:function` that turns an observation into text), `instructions` (what the
    agent is told before the actions), `success_at` (the return that counts as a success), `score_range` (lowest and
    highest return), `max_steps`, `content` (what tells two tasks apart: `seed`, or `observation`, the first one).
    """

    name: ClassVar[str] = "gym"
    grammar: ClassVar[ActionGrammar] = ANY_TEXT
    success_rule: ClassVar[str] = "at the end of the episode its rewards add up to at least success_at"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    requirements: ClassVar[tuple[str, ...]] = ("gymnasium",)

    def __init__(
        self,
        id: str = "",
        make: Mapping[str, Any] | None = None,
        wrapper: str = "",
        actions: Sequence[str] = (),
        observation: str = "str",
        instructions: str = "",
        success_at: float = 1.0,
        score_range: Sequence[float] = (0.0, 1.0),
        max_steps: int = 100,
        content: str = "seed",
    ) -> None:
        if max_steps < 1:
            raise UserError(f"gym: max_steps is {max_steps}", "An episode needs at least one turn.")
        if len(score_range) != 2 or score_range[0] >= score_range[1]:
            raise UserError(f"gym: score_range is {score_range}", "It is the lowest and the highest return: [0, 1].")
        if content not in ("seed", "observation"):
            raise UserError(f"gym: content is {content!r}", "Choose seed or observation.")
        self._tell = teller(observation)
        self._gym = make_gym(id, wrapper, make or {})
        self._space = self._gym.action_space
        vars(self)["grammar"] = grammar_of(self._space, actions)  # this environment's own
        vars(self)["score_range"] = (float(score_range[0]), float(score_range[1]))
        self.max_steps = max_steps
        self.success_at = success_at
        self.content = content
        self._told = instructions or f"Act in {id}."
        self._last = ""
        self._present: _Episode | None = None

    def instructions(self) -> str:
        return f"{self._told} Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """The seeds of a split, without end unless first observations run out."""
        if options.get("content", "seed") != "seed":
            yield from cls._distinct_ids(split, **options)
            return
        for number in count():
            if split_of(f"{cls.name} {number}") == split:
                yield f"{cls.name}_{number}"

    @classmethod
    def _distinct_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        world = cls(**options)
        met: set[int] = set()
        number = last = 0
        while number - last < _BARREN_RUN:
            first = world.reset(Task(cls.name, f"{cls.name}_{number}")).text
            if stable_hash(first) not in met:
                met.add(stable_hash(first))
                last = number
                if split_of(first) == split:
                    yield f"{cls.name}_{number}"
            number += 1
        world.close()

    def reset(self, task: Task) -> Observation:
        seed = item_number(self.name, task.item_id)
        if seed >= 2**31:
            raise UserError(f"{task.item_id} is not an item of gym", "Its number is a seed, below 2**31.")
        seen, _ = self._gym.reset(seed=seed)
        self._present = _Episode(task.item_id)
        return self._show(seen)

    def step(self, action: str) -> StepResult:
        episode = self._episode
        if episode.over:
            raise EpisodeOver(f"{episode.item_id} is over; call reset")
        episode.turns += 1
        taken = self._taken(action)
        if taken is None:
            told = f"That is no action here. Actions: {self.grammar.describe()}.\n{self._last}"
            episode.over = episode.turns >= self.max_steps
            info = {"invalid": f"not one of {self.grammar.describe()}"}
            return StepResult(Observation(told), 0.0, False, episode.over, self._succeeded(), info)
        seen, reward, terminated, truncated, _ = self._gym.step(taken)
        episode.total += float(reward)
        truncated = bool(not terminated and (truncated or episode.turns >= self.max_steps))
        episode.over = bool(terminated) or truncated
        return StepResult(self._show(seen), float(reward), bool(terminated), truncated, self._succeeded())

    def random_action(self, uniform: float) -> str:
        """Any action; of a space of texts, any text."""
        if self.grammar is not ANY_TEXT:
            return pick(self.grammar.forms, uniform).shown
        self._space.seed(int(uniform * 2**31))
        return str(self._space.sample())

    def close(self) -> None:
        self._gym.close()

    def render(self) -> str:
        return self._last

    @property
    def _episode(self) -> _Episode:
        if self._present is None:
            raise EpisodeOver("gym: no episode has begun; call reset")
        return self._present

    def _taken(self, action: str) -> Any:
        """The action as the environment wants it, or None."""
        if self.grammar is ANY_TEXT:
            return action if self._space.contains(action) else None
        for number, form in enumerate(self.grammar.forms):
            if ActionGrammar((form,)).parse(action):
                return int(self._space.start) + number
        return None

    def _succeeded(self) -> bool:
        return self._episode.over and self._episode.total >= self.success_at

    def _show(self, seen: Any) -> Observation:
        self._last = self._tell(self._gym, seen)
        return Observation(self._last)
