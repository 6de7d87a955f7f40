"""Calls of a chat endpoint as segments: messages are matched to recorded tokens, never encoded anew where they match.

A call that continues an earlier one (the same messages, its answer, and one message more) continues its segment. One
that goes back to an earlier point of a conversation starts a new segment with the tokens recorded up to there as its
prompt: they are not trained on twice. Any other call is a prompt of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from openmanus_rl.agent.episode import Segment
from openmanus_rl.agent.sampling import append
from openmanus_rl.data.messages import Message
from openmanus_rl.inference.base import Completion
from openmanus_rl.models.chat import ChatRenderer


@dataclass(frozen=True)
class _Point:
    """After an answer: so many messages, so many tokens."""

    messages: int
    length: int
    ended: bool
    """Whether the last sampled token ends a turn."""


@dataclass
class _Thread:
    """A segment, and the conversation that it is."""

    segment: Segment
    messages: list[Message]
    session: str
    """Where the engine holds its keys."""
    points: list[_Point] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """A call's whole prompt, and what it continues."""

    messages: Sequence[Message]
    ids: list[int]
    thread: _Thread | None
    point: _Point | None

    @property
    def continues(self) -> bool:
        """Whether the call goes on where its thread has ended, so that its tokens belong to the same segment."""
        return self.thread is not None and self.point is not None and len(self.thread.segment.ids) == self.point.length

    @property
    def session(self) -> str | None:
        """The engine's session that the call goes on in; None if it begins one."""
        return self.thread.session if self.thread is not None and self.continues else None


class Recording:
    """What one agent said and was answered in one episode."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._threads: list[_Thread] = []

    @property
    def segments(self) -> list[Segment]:
        return [thread.segment for thread in self._threads]

    def call(self, messages: Sequence[Message]) -> Call:
        """The prompt of a call, with recorded tokens as far as its messages are recorded ones."""
        thread, point = self._longest_match(messages)
        if thread is None or point is None:
            return Call(messages, self._renderer.prompt_ids(messages), None, None)
        new = messages[-1]
        recorded = list(thread.segment.ids[: point.length])
        return Call(
            messages, recorded + self._renderer.append_ids(point.ended, new["content"], new["role"]), thread, point
        )

    def note(self, call: Call, completion: Completion, session: str, seconds: float) -> str:
        """Record what was sampled for a call in a session of the engine; the answer's text."""
        text = self._renderer.decode(completion.token_ids)
        if call.continues and call.thread is not None:
            thread = call.thread
            thread.segment.turns[-1].observation = call.messages[-1]["content"]
            thread.segment.ids.extend(call.ids[len(thread.segment.ids) :])
            thread.messages.append(call.messages[-1])
        else:
            thread = _Thread(Segment(ids=call.ids, prompt_length=len(call.ids)), list(call.messages), session)
            self._threads.append(thread)
        segment = thread.segment
        turn = append(segment, completion, text, seconds)
        turn.action = text
        segment.turns.append(turn)
        thread.messages.append({"role": "assistant", "content": text})
        ended = bool(completion.token_ids) and completion.token_ids[-1] in self._renderer.stop_token_ids
        thread.points.append(_Point(len(thread.messages), len(segment.ids), ended))
        return text

    def _longest_match(self, messages: Sequence[Message]) -> tuple[_Thread | None, _Point | None]:
        """The latest point with exactly one message left to say."""
        for thread in reversed(self._threads):
            for point in thread.points:
                if point.messages + 1 == len(messages) and messages[-1]["role"] != "assistant":
                    recorded = thread.messages[: point.messages]
                    if all(_same(one, other) for one, other in zip(recorded, messages, strict=False)):
                        return thread, point
        return None, None


def _same(recorded: Message, said: Message) -> bool:
    """Whether a message is the recorded one; many clients strip the blanks around an answer before they repeat it."""
    if recorded["role"] != said["role"]:
        return False
    if recorded["role"] == "assistant":
        return recorded["content"].strip() == said["content"].strip()
    return recorded["content"] == said["content"]
