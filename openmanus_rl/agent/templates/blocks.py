"""Blocks between an opening and a closing tag: found by plain search, so that no text takes long."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """`<name>…</name>` in a text."""

    name: str
    outer: tuple[int, int]
    """With its tags."""
    inner: tuple[int, int]


def blocks(text: str, names: Sequence[str], start: int = 0) -> list[Block]:
    """All whole blocks of these names from `start` on, in order; blocks do not nest."""
    found: list[Block] = []
    while True:
        openings = [(at, name) for name in names if (at := text.find(f"<{name}>", start)) >= 0]
        if not openings:
            return found
        at, name = min(openings)
        inside = at + len(name) + 2
        closing = text.find(f"</{name}>", inside)
        if closing < 0:
            start = inside
            continue
        start = closing + len(name) + 3
        found.append(Block(name, (at, start), (inside, closing)))
