"""Questions over the encyclopedia: one to three facts in a row, each about what the one before named."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from openmanus_rl.envs.items import seeded, shuffled
from openmanus_rl.envs.searchqa.encyclopedia import RELATIONS, Encyclopedia, Kind, Relation, encyclopedia

QUESTIONS_OF_A_LENGTH = 2_000
"""How many questions there are of one, of two and of three hops."""


@dataclass(frozen=True)
class Question:
    """What is asked, all spellings of the right answer, and the pages that lead to it, one after the other."""

    text: str
    answers: tuple[str, ...]
    pages: tuple[str, ...] = ()
    """Their titles; empty where the way is not known."""

    @property
    def hops(self) -> int:
        return len(self.pages)


@lru_cache(maxsize=1)
def own_questions() -> tuple[Question, ...]:
    """Of one, two and three hops in turn, in an order that never changes."""
    book = encyclopedia()
    by_hops = []
    for hops in (1, 2, 3):
        starts = shuffled(list(book.kinds), seeded(f"searchqa questions {hops}"))
        ways = [list(_ways(book.kinds[start], hops)) for start in starts]
        found: list[Question] = []
        turn = 0
        while len(found) < QUESTIONS_OF_A_LENGTH:
            for start, choices in zip(starts, ways, strict=True):
                way = choices[(turn + len(start)) % len(choices)] if turn < len(choices) else None
                question = _question(book, start, way) if way else None
                if question and len(found) < QUESTIONS_OF_A_LENGTH:
                    found.append(question)
            turn += 1
        by_hops.append(found)
    return tuple(question for triple in zip(*by_hops, strict=True) for question in triple)


def _ways(kind: Kind, hops: int) -> Iterator[tuple[Relation, ...]]:
    """All chains of so many relations that begin at a kind of thing; only the last may lead to a bare value."""
    for relation in _relations_of()[kind]:
        if hops == 1:
            yield (relation,)
        elif relation.to != "value":
            for rest in _ways(relation.to, hops - 1):
                yield (relation, *rest)


@lru_cache(maxsize=1)
def _relations_of() -> Mapping[Kind, list[Relation]]:
    found: dict[Kind, list[Relation]] = {}
    for relation in RELATIONS:
        found.setdefault(relation.of, []).append(relation)
    return found


def _question(book: Encyclopedia, start: str, way: tuple[Relation, ...]) -> Question | None:
    """The question that goes this way, unless the way comes back to where it was."""
    pages, phrase = [start], start
    for relation in way[:-1]:
        phrase = relation.phrase.format(x=phrase)
        pages.append(book.facts[pages[-1], relation.name])
    answer = book.facts[pages[-1], way[-1].name]
    if len({*pages, answer}) <= len(pages):
        return None
    return Question(way[-1].asked.format(x=phrase), (answer,), tuple(pages))
