"""The game of Wordle as a world."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Isolation,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
)
from openmanus_rl.envs.items import item_number, pick
from openmanus_rl.envs.wordle.words import best_guess, colours_of, first_words, possible_words
from openmanus_rl.errors import UserError

SOLVED_REWARD = 1.0
INVALID_REWARD = -0.05

GIVEN, GIVEN_OF_LONG_LIST = 10_000, 1_000_000
"""Item numbers from here on carry a given guess; the committed list stays shorter, a file of one's own may not."""


@dataclass
class _Game:
    item_id: str
    history: list[tuple[str, str]] = field(default_factory=list)
    used: int = 0
    over: bool = False


class Wordle(Environment):
    """Find the secret five-letter word. After each guess every letter gets a colour:

    `g` (green) it stands in that place, `y` (yellow) it stands elsewhere in the word, `b` (black) it does not. A letter
    that the guess has more often than the secret is coloured only as often as the secret has it.

    A guess is `c r a n e` or `crane`. What is seen is each letter with its colour, `c:b r:y a:g n:b e:b`, or with
    `echo=False` the colours alone, `b y g b b`. Finding the word pays 1. A guess that is not a word of the list, or
    not a word at all, costs 0.05 and uses up a guess. After `max_guesses` the game is lost.

    Item n below 10,000 is the n-th word of the list. Above, the task also comes with a guess that is made already, and
    costs none: item 10,000 × (1 + g) + n is word n after a guess of word g.

    Options: `words` (play with the first N words of the list only, as secrets and as guesses; None: all),
    `max_guesses`, `echo`, `given_guess` (the tasks of a split are those with a guess given), `word_list` (the path of
    another list, one word a line), `penalties` (whether what is no word costs something; AgentGym's does not). The
    secret is never shown, not even at the end.
    """

    name: ClassVar[str] = "wordle"
    grammar: ClassVar[ActionGrammar] = ActionGrammar((ActionForm("c r a n e", r"[a-z](?: [a-z]){4}|[a-z]{5}"),))
    success_rule: ClassVar[str] = "the secret word is guessed within max_guesses guesses"
    score_range: ClassVar[tuple[float, float]] = (-0.3, 1.0)
    isolation: ClassVar[Isolation] = "inline"

    def __init__(
        self,
        words: int | None = None,
        max_guesses: int = 6,
        echo: bool = True,
        given_guess: bool = False,
        word_list: str | None = None,
        penalties: bool = True,
    ) -> None:
        if max_guesses < 1:
            raise UserError(f"wordle: max_guesses is {max_guesses}", "A game needs at least one guess.")
        self.words = first_words(words, word_list)
        vars(self)["score_range"] = (INVALID_REWARD * max_guesses if penalties else 0.0, SOLVED_REWARD)
        self.penalties = penalties
        self.max_guesses = max_guesses
        self.echo = echo
        self.given_guess = given_guess
        self._present: _Game | None = None

    def instructions(self) -> str:
        return (
            f"Find the secret word in {self.max_guesses} guesses. Colours: g right place, y other place, b not in it. "
            f"Action, five letters: {self.grammar.describe()}"
        )

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """One item for each word of the split, or with `given_guess` for each pair of a given guess and a secret."""
        world = cls(**options)
        givens = range(1, len(world.words) + 1) if world.given_guess else (0,)
        for given, secret in product(givens, range(len(world.words))):
            content = f"{world.words[given - 1]} {world.words[secret]}" if given else world.words[secret]
            if given - 1 != secret and split_of(content) == split:
                yield f"{cls.name}_{given * world._given_from + secret}"

    def reset(self, task: Task) -> Observation:
        secret, guess = self._task_of(task.item_id)
        self._present = _Game(task.item_id)
        if guess is None:
            return Observation("guess")
        colours = colours_of(guess, secret)
        self._present.history.append((guess, colours))
        return self._seen(guess, colours)

    def step(self, action: str) -> StepResult:
        game = self._game
        if game.over:
            raise EpisodeOver(f"{game.item_id} is over; call reset")
        game.used += 1
        guess = "".join(action.split()).lower() if self.grammar.parse(action) else None
        if guess not in self.words:
            game.over = game.used >= self.max_guesses
            why = "not a word of the list" if guess else "not five letters"
            reward = INVALID_REWARD if self.penalties else 0.0
            return StepResult(
                Observation("invalid word"), reward, game.over, False, success=False, info={"invalid": why}
            )
        secret, _ = self._task_of(game.item_id)
        colours = colours_of(guess, secret)
        game.history.append((guess, colours))
        solved = guess == secret
        game.over = solved or game.used >= self.max_guesses
        return StepResult(self._seen(guess, colours), SOLVED_REWARD if solved else 0.0, game.over, False, solved)

    def filtered_vocab(self) -> list[str]:
        """The words that can still be the secret, by what has been seen; all of them before the first game."""
        history = self._present.history if self._present else []
        return list(possible_words(self.words, tuple(history)))

    def state_key(self) -> str:
        """What is known (in whatever order it was learned) and how many guesses are left; not the secret."""
        known = sorted({f"{guess}={colours}" for guess, colours in self._game.history})
        return f"{self.max_guesses - self._game.used} {' '.join(known)}"

    def expert_action(self) -> str:
        return " ".join(best_guess(tuple(self.filtered_vocab()), self.words))

    def random_action(self, uniform: float) -> str:
        """Any word of the list."""
        return " ".join(pick(self.words, uniform))

    def snapshot(self) -> dict[str, Any]:
        return asdict(self._game)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        history = [(guess, colours) for guess, colours in snapshot["history"]]
        self._present = _Game(snapshot["item_id"], history, snapshot["used"], snapshot["over"])

    def render(self) -> str:
        """The board: a line per guess and one per its colours."""
        lines = [row for guess, colours in self._game.history for row in (" ".join(guess.upper()), " ".join(colours))]
        return "\n".join([*lines, f"{self.max_guesses - self._game.used} guesses left"])

    @property
    def _game(self) -> _Game:
        if self._present is None:
            raise EpisodeOver("wordle: no game has begun; call reset")
        return self._present

    @property
    def _given_from(self) -> int:
        return GIVEN if len(self.words) <= GIVEN else GIVEN_OF_LONG_LIST

    def _task_of(self, item_id: str) -> tuple[str, str | None]:
        """The secret, and the guess that is given with it."""
        given, secret = divmod(item_number(self.name, item_id), self._given_from)
        if max(secret, given - 1) >= len(self.words) or secret == given - 1:
            raise UserError(
                f"{item_id} is not a task of this game",
                f"It has {len(self.words)} words: wordle_0 to wordle_{len(self.words) - 1}.",
            )
        return self.words[secret], self.words[given - 1] if given else None

    def _seen(self, guess: str, colours: str) -> Observation:
        marks = [f"{letter}:{colour}" for letter, colour in zip(guess, colours, strict=True)] if self.echo else colours
        return Observation(" ".join(marks))
