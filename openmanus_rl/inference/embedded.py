"""The engine that lives in the trainer's process and samples from the actor's own weights.

One thread owns the model's forwards and all sessions. What comes from outside (a request, an abort, new weights) is
posted to it and taken up between two steps, so there is one lock, and the event loops that wait stay free meanwhile.
The thread's work starts with the first request and ends when there is none; no event loop is bound to it.
"""

import asyncio
import inspect
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from openmanus_rl.config.schema import LoraConfig
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, FinishReason, InferenceEngine, SamplingParams
from openmanus_rl.inference.deterministic import FixedShapeScheduler
from openmanus_rl.inference.merged_adapters import MergedAdapters
from openmanus_rl.inference.requests import check_request
from openmanus_rl.inference.scheduler import Scheduler
from openmanus_rl.inference.sessions import Request
from openmanus_rl.models.attention import IN_BLOCKS


@dataclass(frozen=True, eq=False)
class _Receiver:
    """A coroutine that waits for a result in its event loop."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    @staticmethod
    def here() -> "_Receiver":
        loop = asyncio.get_running_loop()
        return _Receiver(loop, loop.create_future())


class EmbeddedEngine(InferenceEngine):
    """Continuous batching over a transformers model that someone else may train between two rollouts.

    `max_sessions` bounds the sessions whose keys are kept (more than that may exist: the idle one unused for longest is
    computed anew when it comes back), `max_context` the tokens of a session (by default what the model was made for),
    `prefill_tokens` the tokens that join in one step before the running requests go on. A `deterministic` engine
    computes in fixed shapes, so that no bit depends on what else is running; it has chunks of its own size. With `lora`
    new weights are adapters, which the engine adds to its model's own.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        max_sessions: int = 256,
        max_context: int | None = None,
        prefill_tokens: int = 4096,
        deterministic: bool = False,
        lora: LoraConfig | None = None,
    ) -> None:
        limit = _context_of(model)
        context = limit if max_context is None else max_context
        if not 1 < context <= limit:
            raise UserError(f"max_context={context} does not fit a model made for {limit} positions")
        if max_sessions < 1 or prefill_tokens < 1:
            raise UserError(f"max_sessions={max_sessions} and prefill_tokens={prefill_tokens} must be at least 1")
        self._model = model
        self._adapters = MergedAdapters(model, lora) if lora else None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inference")
        self._scheduler: Scheduler
        if deterministic:
            self._scheduler = scheduler = FixedShapeScheduler(model, max_sessions=max_sessions, max_context=context)
            self._worker.submit(self._settle_rows, scheduler).result()
        else:
            self._scheduler = Scheduler(
                model, max_sessions=max_sessions, max_context=context, prefill_tokens=prefill_tokens
            )
        self._lock = threading.Lock()
        self._posted: deque[Callable[[], None]] = deque()
        self._working = False
        self._closed = False

    @property
    def version(self) -> int:
        return self._scheduler.version

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        *,
        seed: int,
        session: str,
        deadline: float | None = None,
    ) -> Completion:
        check_request(prompt_ids, sampling)
        receiver = _Receiver.here()
        limit = math.inf if deadline is None else deadline
        request = Request(session, list(prompt_ids), sampling, seed, limit, receiver)
        self._post_or_raise(lambda: self._scheduler.add(request))
        # Not at once: requests that other tasks make in this turn of the event loop start in the same step.
        receiver.loop.call_soon(self._wake)
        try:
            completion: Completion = await receiver.future
        except asyncio.CancelledError:
            self._tell(lambda: self._scheduler.end(lambda other: other is request, FinishReason.ABORTED))
            raise
        return completion

    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        if temperature <= 0:
            raise UserError(f"score needs a temperature above 0, not {temperature}")
        scores: list[float] = await self._call(lambda: self._score(ids, temperature))
        return scores

    def abort(self, session: str) -> None:
        self._tell(lambda: self._scheduler.end(lambda request: request.session == session, FinishReason.ABORTED))

    def release(self, session: str) -> None:
        self._tell(lambda: self._scheduler.release(session))

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """Requests that run meanwhile go on with the new weights: their keys are computed anew first."""
        await self._call(lambda: self._take_weights(source, version))

    async def close(self) -> None:
        if not self._closed:
            await self._call(lambda: self._scheduler.end(lambda request: True, FinishReason.ABORTED), last=True)
            self._worker.shutdown(wait=False)

    # Called by whoever asks, in any thread.

    async def _call(self, job: Callable[[], Any], last: bool = False) -> Any:
        """The result of `job`, done by the engine's thread between two steps."""
        receiver = _Receiver.here()

        def run() -> None:
            try:
                outcome = job()
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, and is raised there
                outcome = error
            _deliver([(receiver, outcome)])

        self._post_or_raise(run, last)
        self._wake()
        return await receiver.future

    def _tell(self, job: Callable[[], None]) -> None:
        """Have `job` done, unless the engine is closed: then there is nothing left to abort or forget."""
        if self._post(job):
            self._wake()

    def _post_or_raise(self, job: Callable[[], None], last: bool = False) -> None:
        if not self._post(job, last):
            raise RuntimeError("the inference engine is closed")

    def _post(self, job: Callable[[], None], last: bool = False) -> bool:
        """Put `job` before the engine's thread; False if an earlier one was the `last`."""
        with self._lock:
            if self._closed:
                return False
            self._closed = last
            self._posted.append(job)
            return True

    def _wake(self) -> None:
        with self._lock:
            if not self._working and self._posted:
                self._working = True
                self._worker.submit(self._work)

    # Called by the engine's thread only.

    def _settle_rows(self, scheduler: FixedShapeScheduler) -> None:
        with torch.inference_mode(), _evaluating(self._model):
            scheduler.settle_rows()

    def _work(self) -> None:
        """Step until there is nothing to do."""
        with torch.inference_mode():
            while True:
                try:
                    self._advance()
                except Exception as error:  # noqa: BLE001 - whatever the model raises belongs to those who wait for it
                    self._scheduler.fail(error)
                _deliver([(request.receiver, outcome) for request, outcome in self._scheduler.take_finished()])
                with self._lock:
                    if not self._posted and not self._scheduler.busy:
                        self._working = False
                        return

    def _advance(self) -> None:
        while self._posted:
            self._posted.popleft()()
        if self._scheduler.busy:
            with _evaluating(self._model):
                self._scheduler.step()

    def _score(self, ids: list[int], temperature: float) -> list[float]:
        ids_1T = torch.tensor([ids], device=next(self._model.parameters()).device)
        with _evaluating(self._model):
            logits_TV = self._model(input_ids=ids_1T, use_cache=False).logits[0, :-1].float()
        log_probs_TV = torch.log_softmax(logits_TV / temperature, dim=-1)
        scores: list[float] = log_probs_TV.gather(1, ids_1T[0, 1:].unsqueeze(1)).squeeze(1).tolist()
        return scores

    def _take_weights(self, source: Mapping[str, torch.Tensor] | None, version: int) -> None:
        if source is not None and self._adapters:
            self._adapters.take(source)
        elif source is not None:
            _load(self._model, source)
        self._scheduler.forget_keys()
        self._scheduler.version = version


def _deliver(outcomes: list[tuple[_Receiver, Any]]) -> None:
    """Wake the coroutines that wait; those of one event loop together, so that their next requests also meet."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for receiver, outcome in outcomes:
        by_loop.setdefault(receiver.loop, []).append((receiver.future, outcome))
    for loop, results in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, results)
        except RuntimeError:
            if not loop.is_closed():  # in a closed loop nobody waits any more
                raise


def _settle(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in results:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout, and as the trainer left it afterwards."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def _load(model: torch.nn.Module, source: Mapping[str, torch.Tensor]) -> None:
    """Copy a state dict into the model; tied weights may be left out."""
    own = set(model.state_dict())
    tied = set(getattr(model, "all_tied_weights_keys", {}))
    missing, unknown = sorted(own - tied - set(source)), sorted(set(source) - own)
    if missing or unknown:
        raise UserError(
            f"the new weights are not those of this model: missing {missing[:3]}, unknown {unknown[:3]}",
            "Pass the state dict of a model of the same configuration.",
        )
    with torch.inference_mode(mode=False), torch.no_grad():
        model.load_state_dict(source, strict=False)


def _context_of(model: torch.nn.Module) -> int:
    """How many positions the model was made for; an error if this engine cannot run the model."""
    config = cast(PreTrainedModel, model).config.get_text_config()
    kind = type(model).__name__
    hint = "Use an engine of its own for this model."
    needed = {"position_ids", "past_key_values", "logits_to_keep"}
    missing = needed - set(inspect.signature(model.forward).parameters)
    if missing:
        raise UserError(
            f"the embedded engine cannot run {kind}: its forward takes no {', '.join(sorted(missing))}", hint
        )
    unusual = set(get_layer_types_and_kwargs(config)[0]) - {"full_attention"}
    if unusual:
        raise UserError(f"the embedded engine cannot run {kind}: it has {', '.join(sorted(unusual))} layers", hint)
    if config._attn_implementation not in ("sdpa", "eager", IN_BLOCKS):
        raise UserError(
            f"the embedded engine cannot run {kind} with attention {config._attn_implementation!r}",
            "Load the model with attn_implementation='sdpa'.",
        )
    return int(config.max_position_embeddings)
