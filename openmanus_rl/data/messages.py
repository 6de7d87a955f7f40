"""One message of a conversation, as chat templates read it."""

from typing import NotRequired, TypedDict


class Message(TypedDict):
    """Who says what. `loss=False` keeps an assistant's message out of the loss in supervised fine-tuning."""

    role: str
    content: str
    loss: NotRequired[bool]
