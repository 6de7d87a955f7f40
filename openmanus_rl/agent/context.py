"""What the model sees of a long episode: all of it, its last turns, or a summary that it writes itself.

A segment only grows. When a strategy cuts the history, a new segment starts, with the task and what is left of the past
as its prompt; what was sampled in the old one trains there.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from openmanus_rl.agent.episode import Turn
from openmanus_rl.config.schema import ContextConfig

if TYPE_CHECKING:
    from openmanus_rl.agent.line import Line

SUMMARY_REQUEST = (
    "Before you go on, write down what you did and learnt so far and what is left to do. "
    "Your notes will stand in the place of everything up to here."
)


def left_out(turns: int) -> str:
    """Stands where turns were cut."""
    return f"[{turns} earlier turns are left out]"


def notes(turns: int, summary: str) -> str:
    """Stands where turns were summarised."""
    return f"[Your notes on the first {turns} turns]\n{summary}"


class Context(Protocol):
    """When a line of play begins a new segment, and with what."""

    def is_due(self, line: "Line", turn: Turn) -> bool:
        """Whether a new segment should begin after `turn`, whose observation is `line.seen`."""

    async def renew(self, line: "Line", turn: Turn) -> bool:
        """Begin it; False if that cannot be done and the old one goes on. It may also have ended the episode."""


class Full:
    """Everything stays; an episode ends when its context is full."""

    def is_due(self, line: "Line", turn: Turn) -> bool:
        return False

    async def renew(self, line: "Line", turn: Turn) -> bool:
        return False


class Window:
    """The last turns: a segment grows to 2n turns, then a new one starts with the task and the last n.

    So a prompt stays as it was for n turns, and the engine computes it once. A segment that is full before it has 2n
    turns is cut then.
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def is_due(self, line: "Line", turn: Turn) -> bool:
        if len(line.shown) >= 2 * self.turns:
            return True
        ids = line.observation_ids(turn, line.seen)
        return not line.has_room(len(ids) + line.player.config.max_tokens_per_turn)

    async def renew(self, line: "Line", turn: Turn) -> bool:
        kept = line.shown[-self.turns :]
        if len(kept) == len(line.shown):
            return False  # nothing could be left out
        start = kept[0].start
        history = [*line.segment.ids[start:], *line.observation_ids(turn, line.seen)]
        gone = len(line.episode.turns) - len(kept)
        opening = f"{line.first_observation}\n\n{left_out(gone)}\n\n{kept[0].seen}"
        line.open_segment(opening, history, [replace(shown, start=shown.start - start) for shown in kept])
        return True


class Summary:
    """Notes: after n turns, or when the context runs short, the model writes a summary; a new segment starts with it.

    The summary is sampled in the old segment, where the last observation would stand; that one is shown in the new
    segment as it is. Whether the summary trains is `trains`.
    """

    def __init__(self, turns: int, max_tokens: int, trains: bool) -> None:
        self.turns = turns
        self.max_tokens = max_tokens
        self.trains = trains

    def is_due(self, line: "Line", turn: Turn) -> bool:
        if len(line.shown) >= self.turns:
            return True
        another = len(line.observation_ids(turn, line.seen)) + line.player.config.max_tokens_per_turn
        asked = line.observation_ids(turn, SUMMARY_REQUEST)
        return not line.has_room(another + len(asked) + self.max_tokens)

    async def renew(self, line: "Line", turn: Turn) -> bool:
        asked = line.observation_ids(turn, SUMMARY_REQUEST)
        if not line.has_room(len(asked) + self.max_tokens):
            return False
        segment = line.segment
        segment.ids.extend(asked)
        segment.trains_summary = self.trains
        summary = await line.sample(self.max_tokens, purpose="/summary")
        if summary is None:
            return True  # which ended the episode
        summary.kind = "summary"
        segment.summary = summary
        written = notes(len(line.episode.turns), summary.text)
        line.open_segment(f"{line.first_observation}\n\n{written}\n\n{line.seen}")
        return True


def make_context(config: ContextConfig) -> Context:
    """The strategy that the config names."""
    if config.kind == "window":
        return Window(config.turns)
    if config.kind == "summary":
        return Summary(config.turns, config.max_summary_tokens, config.train_summaries)
    return Full()
