"""The part of OpenAI's chat API that is served: what a request may ask, and what an answer looks like."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openmanus_rl.data.messages import Message
from openmanus_rl.inference.base import FinishReason

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CONTEXT: "length"}
_NOT_SERVED = ("tools", "functions", "stop", "logit_bias")


class Refused(Exception):
    """A request that is answered with an error, in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": code, "code": code, "param": None}}


@dataclass(frozen=True)
class ChatRequest:
    """What a client asks for; None where it leaves that to the server."""

    messages: list[Message]
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    stream: bool


def read_request(body: Any) -> ChatRequest:
    """A request, or `Refused` with the reason. What would be ignored and change the answer is refused."""
    if not isinstance(body, Mapping):
        raise Refused(400, "the body is not a JSON object")
    for name in _NOT_SERVED:
        if body.get(name):
            raise Refused(400, f"{name} is not served here")
    if body.get("n") not in (None, 1):
        raise Refused(400, "n is not served here: ask once for each answer")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "messages must be a list with at least one message")
    return ChatRequest(
        messages=[_read_message(message) for message in messages],
        max_tokens=_number(body, "max_completion_tokens", int) or _number(body, "max_tokens", int),
        temperature=_number(body, "temperature", float),
        top_p=_number(body, "top_p", float),
        seed=_number(body, "seed", int),
        stream=bool(body.get("stream")),
    )


def answer(model: str, number: str, text: str, finish: FinishReason, prompt: int, sampled: int) -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": _FINISH[finish]},
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled},
    }


def as_stream(whole: Mapping[str, Any]) -> Iterator[str]:
    """The same answer as server-sent events, for clients that only read those: all its text in one piece."""
    choice = whole["choices"][0]
    for delta, finish in ((choice["message"], None), ({}, choice["finish_reason"])):
        chunk = {
            **{name: whole[name] for name in ("id", "created", "model")},
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def _read_message(message: Any) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise Refused(400, "a message needs a role and a content")
    if message.get("tool_calls"):
        raise Refused(400, "tool_calls are not served here")
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if any(not isinstance(part, str) for part in parts):
            raise Refused(400, "only text is served here")
        content = "".join(part for part in parts if part)
    if not isinstance(content, str):
        raise Refused(400, "a message's content must be text")
    return {"role": message["role"], "content": content}


def _number(body: Mapping[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != int(value)):
        raise Refused(400, f"{name} must be a number, not {value!r}")
    return kind(value)
