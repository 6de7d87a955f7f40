"""Words of a text, for searching it and for comparing answers: the same on every machine."""

import re
import string
from functools import lru_cache

_FUNCTION_WORDS = """
a an and any are as at be but by did do does for from had has have how i if in into is it its me my no not of on or our
so such than that the their then there these they this to under up was we were what when where which who whom whose will
with would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that say nothing of what a text is about."""

_WORD = re.compile(r"\w+")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain_words(text: str) -> list[str]:
    """The words in lower case, in their order."""
    return _WORD.findall(text.lower())


def search_terms(text: str) -> list[str]:
    """What a text is found by: its words but the function words, each without a plural's ending."""
    return [_stem(word) for word in plain_words(text) if word not in FUNCTION_WORDS]


def normal_answer(text: str) -> str:
    """An answer without case, punctuation, articles and needless spaces: equal where people would call it equal."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
