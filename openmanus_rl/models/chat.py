"""Conversations as token ids that only grow.

A chat template is text in, text out, and would be applied to the whole conversation at every turn. Here it is asked
once what it puts around a message; from then on each turn appends tokens, and no token changes that stands already.
World text is data: what looks like a special token in it is encoded as plain text, so a world cannot end a turn.
A template that asks for the date always gets the same one: a prompt depends on nothing but the conversation.
"""

import copy
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, cast

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from openmanus_rl.data.messages import Message
from openmanus_rl.errors import UserError
from openmanus_rl.models.pieces import token_pieces

_MARK = re.compile("\ue000(\\d+)\ue001")
_THOUGHT = "\ue002"
"""Stands for what an assistant thought, while a template is asked whether it keeps it."""

PRESENT = datetime(2024, 7, 26)
"""The date that templates are told, that of Llama 3's own default."""


def _mark(index: int) -> str:
    """Stands for the content of message `index` while the template is rendered (private-use characters)."""
    return f"\ue000{index}\ue001"


@dataclass(frozen=True)
class _Text:
    """A piece of a rendered conversation: the template's own text, in which special tokens count, or content."""

    text: str
    is_template: bool


@dataclass(frozen=True)
class _AfterAnswer:
    """What a template writes between an assistant's content and its next one, as tokens where it can be."""

    closing: list[int]
    """Up to and with the token that ends the assistant's turn."""
    before: list[int]
    """From there to the last special token before the new message's content."""
    left: str
    """From there to the content: it is encoded in one run with it."""
    right: str
    """From the content to the next special token: it too."""
    after: list[int]
    """From there to where the assistant's next content starts."""


class ChatRenderer:
    """Renders conversations for one tokenizer and its chat template.

    The template must be prefix-preserving: what it wrote for a conversation stays as it is when messages are added.
    One that is not is refused, unless `keep_history` says that earlier turns stay as they were sampled all the same.
    Content is taken as it is, also where a template would trim it. `options` are variables of the template, such as
    Qwen3's `enable_thinking`; `observation_role` is who tells the agent what it sees.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        observation_role: str = "user",
        keep_history: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"the tokenizer of {tokenizer.name_or_path or 'this model'} has no chat template",
                "Use an instruction-tuned model, or add a chat_template.jinja to its directory.",
            )
        for name in options or {}:
            if not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template)):
                raise UserError(
                    f"model.chat_options.{name} has no effect: the chat template has no variable of that name.",
                    "Remove it; the template is in the model's tokenizer files.",
                )
        self._tokenizer = tokenizer
        self._keep_history = keep_history
        self._options = {"strftime_now": PRESENT.strftime, **(options or {})}
        self.observation_role = observation_role
        self._plain_ids = _plain_encoder(tokenizer)
        self._decode = _plain_decoder(tokenizer)
        specials = [(id_, token) for id_, token in tokenizer.added_tokens_decoder.items() if token.special]
        specials.sort(key=lambda entry: -len(entry[1].content))
        self._special_ids = [id_ for id_, _ in specials]
        blanks = {True: r"\s*", False: ""}
        self._special = re.compile(
            "|".join(f"{blanks[t.lstrip]}({re.escape(t.content)}){blanks[t.rstrip]}" for _, t in specials) or "(?!)"
        )
        self.pad_token_id: int = cast(int, tokenizer.pad_token_id)
        self.pieces = token_pieces(tokenizer)
        """Token ids to the text that each adds, for whoever looks at them."""
        self._token_texts: dict[int, str] = {}
        self._after_answer: dict[str, _AfterAnswer] = {}
        self.end_of_turn_id: int = self._after(observation_role).closing[-1]
        self.stop_token_ids: frozenset[int] = frozenset({self.end_of_turn_id, cast(int, tokenizer.eos_token_id)})

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """A conversation up to where the assistant's next content starts."""
        pieces = []
        seen = []
        for position, part in enumerate(_MARK.split(self._render(messages, add_generation_prompt=True))):
            if position % 2 == 0:
                pieces.append(_Text(part, is_template=True))
            else:
                seen.append(int(part))
                pieces.append(_Text(messages[int(part)]["content"], is_template=False))
        if sorted(seen) != list(range(len(messages))):
            roles = ", ".join(message["role"] for message in messages)
            raise UserError(f"the chat template leaves out or repeats a message of a conversation of {roles}")
        return self._encode(pieces)

    def append_ids(self, sampled_ended_with_eos: bool, content: str, role: str | None = None) -> list[int]:
        """The tokens between an assistant's sampled tokens and its next ones: end of turn, a new message, a new start.

        `sampled_ended_with_eos` says whether the last sampled token is a stop token; it is not repeated then. Without a
        `role` the message is an observation.
        """
        around = self._after(role or self.observation_role)
        closing = [] if sampled_ended_with_eos else around.closing
        run = self.encode_content(around.left + content + around.right)
        return [*closing, *around.before, *run, *around.after]

    def answer_ids(self, content: str) -> list[int]:
        """An assistant's message as if it had been sampled: its content and the end of the turn."""
        return [*self.encode_content(content), self.end_of_turn_id]

    def conversation_ids(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """A whole conversation with its loss mask: 1 on the assistant's content and end tokens, unless `loss=False`.

        The ids are those that the same conversation has when it is played. What follows the last answer is left out.
        """
        answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers:
            raise UserError("a conversation without an assistant's message has nothing to learn from")
        ids = self.prompt_ids(messages[: answers[0]])
        mask = [0] * len(ids)

        def add(new: list[int], loss: bool) -> None:
            ids.extend(new)
            mask.extend([int(loss)] * len(new))

        def add_answer(message: Message) -> None:
            add(self.answer_ids(message["content"]), message.get("loss", True))

        add_answer(messages[answers[0]])
        for earlier, later in pairwise(answers):
            between = messages[earlier + 1 : later]
            if len(between) != 1:
                raise UserError(
                    f"messages {earlier} and {later} are the assistant's, with {len(between)} messages between them",
                    "Exactly one message must stand between two answers.",
                )
            add(self.append_ids(True, between[0]["content"], between[0]["role"]), loss=False)
            add_answer(messages[later])
        return ids, mask

    def encode_content(self, text: str) -> list[int]:
        """Text as plain tokens, whatever special tokens it seems to contain."""
        return self._plain_ids(text) if text else []

    def ends_with(self, texts: Sequence[str]) -> frozenset[int]:
        """The tokens that end a turn, and those of `texts` that are a single token: sampling can stop at them."""
        known = {text: self._tokenizer.added_tokens_encoder.get(text) for text in texts}
        return self.stop_token_ids | {token for token in known.values() if token is not None}

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, without the stop token at their end."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return self._decode(ids)

    def token_span(self, token_ids: Sequence[int], text: str, start: int, end: int) -> tuple[int, int]:
        """The tokens, as a half-open range, that wrote the characters `start` to `end` of their `text`.

        A token on an edge is inside, and so is every token of a character that several tokens wrote.
        """
        lengths = self._lengths(token_ids, text)
        begun = max(length for length in lengths if length <= start)
        return lengths.index(begun), bisect_left(lengths, end)

    def _lengths(self, token_ids: Sequence[int], text: str) -> list[int]:
        """Whole characters of the text after 0, 1, 2, … tokens, the stop token left out."""
        alone = [self._alone(token) for token in token_ids]
        if len(alone) and token_ids[-1] in self.stop_token_ids:
            alone[-1] = ""
        if "".join(alone) == text:  # almost always: no character was written by halves
            return list(accumulate(map(len, alone), initial=0))
        prefixes = (self.decode(token_ids[:count]).rstrip("\ufffd") for count in range(len(token_ids)))
        return list(accumulate([*map(len, prefixes), len(text)], max))

    def _alone(self, token: int) -> str:
        """The text of a single token."""
        if token not in self._token_texts:
            self._token_texts[token] = self._decode([token])
        return self._token_texts[token]

    def _encode(self, pieces: Sequence[_Text]) -> list[int]:
        """Special tokens of the template become their ids; the text between two of them is encoded in one run."""
        ids: list[int] = []
        run = ""
        for piece in pieces:
            position = 0
            for match in self._special.finditer(piece.text) if piece.is_template else ():
                run += piece.text[position : match.start()]
                ids += self.encode_content(run)
                ids.append(self._special_ids[cast(int, match.lastindex) - 1])
                run = ""
                position = match.end()
            run += piece.text[position:]
        return ids + self.encode_content(run)

    def _template_ids(self, text: str) -> list[int]:
        return self._encode([_Text(text, is_template=True)])

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """The template's text with a mark in the place of each content."""
        marked = [{**message, "content": _mark(index)} for index, message in enumerate(messages)]
        return self._apply(marked, add_generation_prompt)

    def _apply(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [{"role": message["role"], "content": message["content"]} for message in messages],
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    **self._options,
                )
            )
        except (TemplateError, ValueError, IndexError) as error:
            roles = ", ".join(message["role"] for message in messages) or "no messages"
            raise UserError(
                f"the chat template refuses a conversation of {roles}: {error}", "Use roles that the model knows."
            ) from error

    def _after(self, role: str) -> _AfterAnswer:
        """What stands around a new message of `role`: found once, on a dummy conversation."""
        if role not in self._after_answer:
            self._after_answer[role] = self._probe(role)
        return self._after_answer[role]

    def _probe(self, role: str) -> _AfterAnswer:
        opening = self._longest_opening()
        first = self._growth(opening, role)
        second = self._growth([*opening, _dummy("assistant"), _dummy(role)], role)
        if _MARK.sub("…", first) != _MARK.sub("…", second):
            raise _not_preserving(f"around the second {role} message it writes", first, second)
        if not self._keep_history:
            self._check_thoughts_stay(opening, role)
        closed = self._render([*opening, _dummy("assistant")], add_generation_prompt=False)
        closing = closed.partition(_mark(len(opening)))[2]
        end = self._special.search(first[: _shared_length(closing, first)])
        if end is None:
            raise UserError(
                "the chat template puts no special token after an assistant's message",
                "Without one a model cannot end its turn; use a template that has an end-of-turn token.",
            )
        before, _, after = _MARK.sub("\ue000", first[end.end() :]).partition("\ue000")
        last = max((match.end() for match in self._special.finditer(before)), default=0)
        found = self._special.search(after)
        next_special = found.start() if found else len(after)
        return _AfterAnswer(
            closing=self._template_ids(first[: end.end()]),
            before=self._template_ids(before[:last]),
            left=before[last:],
            right=after[:next_special],
            after=self._template_ids(after[next_special:]),
        )

    def _longest_opening(self) -> list[Message]:
        """The start of the dummy conversation: with a system message, if the template takes one."""
        with_system = [_dummy("system"), _dummy("user")]
        try:
            self._render(with_system, add_generation_prompt=True)
        except UserError:
            return with_system[1:]
        return with_system

    def _growth(self, opening: list[Message], role: str) -> str:
        """What the template adds after an answer to `opening` when a message of `role` follows."""
        until_answer = self._render(opening, add_generation_prompt=True) + _mark(len(opening))
        whole = self._render([*opening, _dummy("assistant"), _dummy(role)], add_generation_prompt=True)
        if self._keep_history and _mark(len(opening)) in whole:
            return whole.partition(_mark(len(opening)))[2]
        if not whole.startswith(until_answer):
            raise _not_preserving("it rewrites earlier text when a message is added:", until_answer, whole)
        return whole[len(until_answer) :]

    def _check_thoughts_stay(self, opening: list[Message], role: str) -> None:
        """Whether an answer with a block of reasoning still has it when a message of `role` follows."""
        answer = {"role": "assistant", "content": f"<think>\n{_THOUGHT}\n</think>\n\n."}
        follows = {"role": role, "content": "."}
        if _THOUGHT not in self._apply([*opening, answer, follows], add_generation_prompt=True):
            raise UserError(
                "the chat template is not prefix-preserving: it drops what the assistant thought in <think>…</think> "
                f"once a {role} message follows",
                "Tokens that were sampled must not change. Set model.keep_history=true: earlier thoughts then stay in "
                "the context as they were sampled. Or use a template that only appends.",
            )


def _plain_encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], list[int]]:
    """Text to ids with no special tokens in it. The Rust tokenizer itself takes a third of its wrapper's time."""
    if not tokenizer.is_fast:
        return lambda text: tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    plain = copy.deepcopy(tokenizer.backend_tokenizer)
    plain.encode_special_tokens = True
    plain.no_padding()
    plain.no_truncation()

    # The episodes of a group have the same prompt and see much the same: half of all texts were encoded before.
    @lru_cache(maxsize=1024)
    def encode(text: str) -> tuple[int, ...]:
        return tuple(plain.encode(text, add_special_tokens=False).ids)

    return lambda text: list(encode(text))


def _plain_decoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[int]], str]:
    """Ids to text with special tokens in it, by the Rust tokenizer itself where there is one."""
    if not tokenizer.is_fast:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return lambda ids: str(tokenizer.decode(ids, **options))
    backend = tokenizer.backend_tokenizer
    return lambda ids: str(backend.decode(ids, skip_special_tokens=False))


def _dummy(role: str) -> Message:
    return {"role": role, "content": ""}


def _shared_length(one: str, other: str) -> int:
    """How many characters two texts have in common from their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _not_preserving(what: str, earlier: str, later: str) -> UserError:
    """Name the first part in which two renderings differ, with a little of what stands before it."""
    same = _shared_length(earlier, later)
    shown = [repr(_MARK.sub("…", text[max(0, same - 20) : same + 40])) for text in (earlier, later)]
    return UserError(
        f"the chat template is not prefix-preserving: {what} {shown[0]} first and {shown[1]} later",
        "Tokens that were sampled must not change. Use a chat template that only appends, or set "
        "model.keep_history=true: what was sampled then stays, whatever the template would make of it.",
    )
