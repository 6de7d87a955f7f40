"""Episodes that were played as text, as conversations to fine-tune on."""

from collections.abc import Iterable, Sequence

from openmanus_rl.agent.episode import Episode
from openmanus_rl.data.demonstrations import Demonstration
from openmanus_rl.data.messages import Message
from openmanus_rl.models.plain_chat import PlainChat


def demonstrations_of(episodes: Iterable[Episode]) -> list[Demonstration]:
    """The episodes that succeeded, a conversation for each segment; answers that its prompt repeats have no loss."""
    return [
        Demonstration(episode.task.item_id, conversation, episode.episode_return, episode.success)
        for episode in episodes
        if episode.stop_reason.is_sample and episode.success
        for segment in episode.segments
        if (conversation := _conversation(segment.ids, segment.prompt_length))
    ]


def _conversation(ids: Sequence[int], prompt_length: int) -> tuple[Message, ...]:
    """Up to the last answer; empty if there is none."""
    chat = PlainChat()
    messages = chat.messages(ids)
    told = len(chat.messages(ids[:prompt_length]))
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index >= told]
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            message["loss"] = index >= told
    return tuple(messages[: answers[-1] + 1]) if answers else ()
