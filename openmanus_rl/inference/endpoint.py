"""An engine behind an OpenAI-compatible endpoint: text goes out, text comes back.

For evaluation and for demonstrations. The endpoint tells neither its tokens nor what it would have given others, so a
completion has no log-probs and no versions, and nothing can be trained on it. Ids are those of `PlainChat`.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import torch

from openmanus_rl.config.schema import EndpointConfig
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, FinishReason, InferenceEngine, SamplingParams
from openmanus_rl.models.plain_chat import PlainChat

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
_MISTAKES = {401, 403, 404}
"""Answers that no other call would change: a wrong key, a wrong address, a model that is not there."""


class EndpointFailure(RuntimeError):
    """The endpoint gave no usable answer, however often it was asked."""


@dataclass(frozen=True)
class _Again:
    """Why a call is worth repeating, and how long the endpoint wants to be left alone first."""

    reason: str
    pause: float | None = None


class EndpointEngine(InferenceEngine):
    """Asks an endpoint, with retries and within a budget of tokens; concurrency is that of the episodes."""

    def __init__(self, config: EndpointConfig) -> None:
        if not config.url or not config.model:
            raise UserError(
                "an endpoint needs an address and the name of a model.",
                "For example: openmanus-rl eval --endpoint http://127.0.0.1:8000/v1 --model NAME",
            )
        self._config = config
        self._url = f"{config.url.rstrip('/')}/chat/completions"
        self._chat = PlainChat()
        self._http: aiohttp.ClientSession | None = None
        self._calls: dict[str, set[asyncio.Task[Completion]]] = {}
        self.tokens_used = 0
        """Of prompts and answers, as the endpoint counts them."""

    @property
    def version(self) -> int:
        return 0

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        *,
        seed: int,
        session: str,
        deadline: float | None = None,
    ) -> Completion:
        call = asyncio.ensure_future(self._ask(prompt_ids, sampling, seed, deadline))
        self._calls.setdefault(session, set()).add(call)
        try:
            return await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.cancelled() and not (task and task.cancelling()):
                return Completion([], [], [], FinishReason.ABORTED)
            call.cancel()
            raise
        finally:
            self._calls.get(session, set()).discard(call)  # the session may have been released meanwhile

    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        raise not_for_training()

    def abort(self, session: str) -> None:
        for call in self._calls.get(session, ()):
            call.cancel()

    def release(self, session: str) -> None:
        self.abort(session)
        self._calls.pop(session, None)

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        raise not_for_training()

    async def close(self) -> None:
        for session in list(self._calls):
            self.release(session)
        if self._http is not None:
            await self._http.close()

    async def _ask(
        self, prompt_ids: list[int], sampling: SamplingParams, seed: int, deadline: float | None
    ) -> Completion:
        budget = self._config.token_budget
        if budget is not None and self.tokens_used >= budget:
            return Completion([], [], [], FinishReason.ABORTED)
        body = {
            "model": self._config.model,
            "messages": self._chat.messages(prompt_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed % 2**31,
        }
        reason = ""
        for number in range(1, self._config.tries + 1):
            seconds = self._config.timeout
            if deadline is not None:
                seconds = min(seconds, deadline - time.monotonic())
            if seconds <= 0:
                return Completion([], [], [], FinishReason.DEADLINE)
            outcome = await self._try(body, seconds)
            if isinstance(outcome, Completion):
                return outcome
            reason = outcome.reason
            if number < self._config.tries:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (number - 1))
                await asyncio.sleep(max(pause, outcome.pause or 0.0))
        raise EndpointFailure(f"{self._url}: {reason} ({self._config.tries} tries)")

    async def _try(self, body: Mapping[str, Any], seconds: float) -> Completion | _Again:
        try:
            async with self._session().post(
                self._url, json=body, timeout=aiohttp.ClientTimeout(total=seconds)
            ) as response:
                if response.status == 200:
                    return self._completion(await response.json(content_type=None))
                told = (await response.text())[:500]
                status, wait = response.status, response.headers.get("Retry-After", "")
        except TimeoutError:
            return _Again(f"no answer within {seconds:.3g} s")
        except (aiohttp.ClientError, ValueError) as error:
            return _Again(f"{type(error).__name__}: {error}")
        if status in _MISTAKES:
            raise UserError(
                f"{self._url} refuses (status {status}): {told}",
                f"Look at --endpoint, --model and the key in the environment variable {self._config.api_key_variable}.",
            )
        if status == 400 and "context" in told:
            return Completion([], [], [], FinishReason.CONTEXT)
        if status < 500 and status not in (408, 429):
            raise EndpointFailure(f"{self._url}: status {status}: {told}")
        return _Again(f"status {status}: {told}", float(wait) if wait.isdigit() else None)

    def _completion(self, answer: Any) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"] or ""
            ended = choice["finish_reason"] != "length"
            used = answer.get("usage") or {}
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EndpointFailure(f"{self._url}: the answer is not one of a chat endpoint: {answer!r:.200}") from error
        if self._config.token_budget is not None and "total_tokens" not in used:
            raise UserError(
                "the endpoint does not say how many tokens it used, so rollout.endpoint.token_budget cannot be kept.",
                "Remove it, and limit the tasks with --n.",
            )
        self.tokens_used += int(used.get("total_tokens", 0))
        ids = self._chat.answer_ids(text) if ended else self._chat.encode_content(text)
        return Completion(ids, [], [], FinishReason.STOP if ended else FinishReason.LENGTH)

    def _session(self) -> aiohttp.ClientSession:
        """Made in the event loop that first asks. The key goes into a header and nowhere else."""
        if self._http is None:
            key = os.environ.get(self._config.api_key_variable)
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            self._http = aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0))
        return self._http


def not_for_training() -> UserError:
    """What to raise where an endpoint is asked for what only training needs."""
    return UserError(
        "rollout.engine=endpoint cannot train: an endpoint gives text, not tokens with their log-probs, and takes no "
        "weights.",
        "Use it with openmanus-rl eval; train with rollout.engine=embedded or vllm.",
    )
