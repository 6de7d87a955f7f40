"""Conversations as characters, for models that are reached as text only: every id is a character or who speaks.

It stands in the place of a `ChatRenderer` where a model's tokens are not known. What is played with it can be read,
scored and fine-tuned on, but not trained on by its tokens: there are none.
"""

from collections.abc import Sequence

from openmanus_rl.data.messages import Message
from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer

_FIRST = 0x110000
"""Behind the last character that Unicode has."""
_ROLES = ("system", "user", "assistant")
_END = _FIRST + len(_ROLES)


class PlainChat:
    """Renders conversations as ids that `messages` reads back."""

    pad_token_id = 0
    end_of_turn_id = _END
    stop_token_ids = frozenset({_END})

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """A conversation up to where the assistant's next content starts."""
        ids = [id_ for message in messages for id_ in self._message_ids(message["role"], message["content"])]
        return [*ids, _speaker("assistant")]

    def append_ids(self, sampled_ended_with_eos: bool, content: str, role: str | None = None) -> list[int]:
        """What stands between an assistant's answer and its next one; a message is the user's if nothing is said."""
        ended = [] if sampled_ended_with_eos else [_END]
        return [*ended, *self._message_ids(role or "user", content), _speaker("assistant")]

    def answer_ids(self, content: str) -> list[int]:
        """An assistant's message: its content and the end of the turn."""
        return [*self.encode_content(content), _END]

    def encode_content(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, without the mark of its end."""
        return "".join(chr(id_) for id_ in token_ids if id_ < _FIRST)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text that each id adds: its character, or who speaks and that the message ends."""
        return [chr(id_) if id_ < _FIRST else "\n" if id_ == _END else f"{_ROLES[id_ - _FIRST]}: " for id_ in ids]

    def ends_with(self, texts: Sequence[str]) -> frozenset[int]:
        """The end of a turn: no text is a token of its own here."""
        return self.stop_token_ids

    def token_span(self, token_ids: Sequence[int], text: str, start: int, end: int) -> tuple[int, int]:
        """Characters are their own tokens."""
        return start, end

    def messages(self, ids: Sequence[int]) -> list[Message]:
        """The conversation that `ids` are; a last message without an end is left out."""
        said: list[Message] = []
        role, text = "", ""
        for id_ in ids:
            if id_ < _FIRST:
                text += chr(id_)
            elif id_ == _END:
                said.append({"role": role, "content": text})
            else:
                role, text = _ROLES[id_ - _FIRST], ""
        return said

    def _message_ids(self, role: str, content: str) -> list[int]:
        return [_speaker(role), *self.encode_content(content), _END]


def _speaker(role: str) -> int:
    if role not in _ROLES:
        raise UserError(f"a message from {role!r} cannot be sent to an endpoint.", f"Roles: {', '.join(_ROLES)}.")
    return _FIRST + _ROLES.index(role)


Renderer = ChatRenderer | PlainChat
"""What writes conversations as ids: a model's tokens, or characters."""
