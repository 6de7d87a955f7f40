"""The word list, the colours of a guess, and which words are still possible.

`words.txt` is append-only: a word's line is its task's number for ever. Common words stand first, so that the first
N lines are a sensible small game.
"""

import re
from collections import Counter
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from openmanus_rl.envs.given_files import read_text
from openmanus_rl.errors import UserError

GREEN, YELLOW, BLACK = "g", "y", "b"
LONGEST_LIST = 100_000

History = tuple[tuple[str, str], ...]
"""Guesses and their colours, oldest first."""


@lru_cache
def word_list() -> tuple[str, ...]:
    """All words, in the order of the file."""
    return tuple((files(__package__) / "words.txt").read_text(encoding="utf-8").split())


@lru_cache
def words_in(path: str) -> tuple[str, ...]:
    """The words of a file, in its order: one of five letters a line; a line of other words is not for this game."""
    lines = read_text(Path(path), "wordle", "word_list").lower().split()
    words = tuple(dict.fromkeys(word for word in lines if re.fullmatch("[a-z]{5}", word)))
    if not 2 <= len(words) < LONGEST_LIST:
        raise UserError(
            f"wordle: {path} has {len(words)} words of five letters",
            f"A game needs 2 to {LONGEST_LIST - 1}, one a line.",
        )
    return words


def first_words(count: int | None, path: str | None = None) -> tuple[str, ...]:
    """The first `count` words, or all of them for None, of the committed list or that at `path`."""
    words = word_list() if path is None else words_in(path)
    if count is None:
        return words
    if not 2 <= count <= len(words):
        raise UserError(f"wordle: words is {count}", f"The list has {len(words)} words; a game needs at least 2.")
    return words[:count]


def colours_of(guess: str, secret: str) -> str:
    """One colour per letter: green in its place, yellow elsewhere in the word, black not (or not so often) in it.

    A letter of the secret colours one letter of the guess only; greens take theirs before yellows.
    """
    unmatched = [there for here, there in zip(guess, secret, strict=True) if here != there]
    colours = []
    for here, there in zip(guess, secret, strict=True):
        if here == there:
            colours.append(GREEN)
        elif here in unmatched:
            unmatched.remove(here)
            colours.append(YELLOW)
        else:
            colours.append(BLACK)
    return "".join(colours)


@lru_cache(maxsize=4096)
def possible_words(words: tuple[str, ...], history: History) -> tuple[str, ...]:
    """The words that would have been coloured as the history says. Games that begin alike share the work."""
    if not history:
        return words
    *earlier, (guess, colours) = history
    return tuple(word for word in possible_words(words, tuple(earlier)) if colours_of(guess, word) == colours)


@lru_cache(maxsize=4096)
def best_guess(possible: tuple[str, ...], words: tuple[str, ...]) -> str:
    """A guess that tells the possible words apart; the first in the list where several are equally good.

    Many possible words are told apart by their most common letters, which is fast. Of fewer, the best guess leaves the
    fewest possible on average. Of very few, a guess that cannot be the secret itself may do so better: words that
    differ in one letter (`light`, `night`, `right`) would otherwise use up the guesses one by one.
    """
    if len(possible) > 60:
        common = Counter(letter for word in possible for letter in set(word))
        return max(possible, key=lambda word: sum(common[letter] for letter in set(word)))

    def words_left(guess: str) -> tuple[int, bool]:
        groups = Counter(colours_of(guess, secret) for secret in possible)
        return sum(size * size for size in groups.values()), guess not in possible

    return min(words if 2 < len(possible) <= 10 else possible, key=words_left)
