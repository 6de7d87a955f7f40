"""Token ids to the text that each adds to a segment: for eyes only, never encoded back."""

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

_HALF = "\ufffd"
"""What a tokenizer decodes bytes to that are no whole character."""


def token_pieces(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], list[str]]:
    """A function from ids to as many pieces, which make up the text when joined.

    Where several tokens make one character, the last of them has it and the others have nothing.
    """

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    anchor = tokenizer.encode("a", add_special_tokens=False)
    before = len(decode(anchor))
    alone: dict[int, str] = {}

    def piece(token: int) -> str:
        if token not in alone:
            # Behind another token: at the start of a text some tokenizers leave out a blank.
            alone[token] = decode([*anchor, token])[before:]
        return alone[token]

    def pieces(ids: Sequence[int]) -> list[str]:
        found: list[str] = []
        halves: list[int] = []
        for token in [*ids, None]:
            text = piece(token) if token is not None else ""
            if token is not None and _HALF in text:
                halves.append(token)
                continue
            if halves:
                found += _joined(halves, decode)
                halves = []
            if token is not None:
                found.append(text)
        return found

    return pieces


def _joined(halves: list[int], decode: Callable[[list[int]], str]) -> list[str]:
    """The pieces of tokens that are parts of characters; what never becomes whole stays a replacement character."""
    found: list[str] = []
    said = ""
    for count in range(1, len(halves) + 1):
        text = decode(halves[:count])
        is_open = text.endswith(_HALF) and count < len(halves)
        found.append("" if is_open else text[len(said) :])
        said = said if is_open else text
    return found
