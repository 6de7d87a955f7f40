"""vLLM as an engine: it computes in processes of its own, with weights of its own that the trainer sends.

vLLM's client lives in one thread with one event loop. Requests come from any event loop and meet there, so nothing
else needs a lock.
"""

import asyncio
import gc
import itertools
import math
import multiprocessing
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, EngineLost, FinishReason, InferenceEngine, SamplingParams
from openmanus_rl.inference.requests import check_request
from openmanus_rl.inference.vllm_start import last_error, start_vllm
from openmanus_rl.inference.vllm_weights import check_names, checkpoint_names, weight_file, write_adapters

Result = TypeVar("Result")

ADAPTER = "policy"


@dataclass(eq=False)
class _Request:
    """A call of `generate` under way; `ended` is set when `reason` says why it ends before vLLM ends it."""

    vllm_id: str | None = None
    reason: FinishReason | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class VllmEngine(InferenceEngine):
    """Samples with vLLM. An update waits until what runs has ended, and what comes meanwhile waits for the update.

    So a completion has one version. Keys of a session's earlier turns are found again by vLLM's prefix cache, in whole
    blocks of `rollout.vllm.block_size` tokens; it is emptied with every update.
    """

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        self._config = config
        self._names = checkpoint_names(Path(model_dir))
        self._vllm: Any = None
        self._version = 0
        self._closed = False
        self._requests: dict[str, _Request] = {}
        self._numbers = itertools.count()
        self._adapter: Any = None
        """With `model.lora.rank`: the adapter that requests ask for, once there is one."""
        self._files = tempfile.TemporaryDirectory(prefix="openmanus-rl-vllm-")
        self._log = Path(self._files.name) / "vllm.log"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._sampling: set[str] = set()
        self._none_sampling = asyncio.Event()
        self._none_sampling.set()
        self._alone = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        with self._given_up_cleanly():
            self._submit(self._start(model_dir)).result()

    @property
    def version(self) -> int:
        return self._version

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
        return await self._call(self._generate(list(prompt_ids), sampling, seed, session, deadline))

    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        """At temperature 1 only: vLLM gives the log-probs of a prompt as the model has them."""
        if temperature != 1.0:
            raise UserError(f"vLLM scores at temperature 1 only, not {temperature:g}.")
        if len(ids) >= self._config.model.max_context:
            raise UserError(
                f"vLLM cannot score {len(ids)} tokens in a context of {self._config.model.max_context}.",
                "It needs room for one more: raise model.max_context, or score fewer.",
            )
        return await self._call(self._score(list(ids)))

    def abort(self, session: str) -> None:
        if not self._closed:
            self._submit(self._abort(session))

    def release(self, session: str) -> None:
        """End what runs for the session. Its keys leave the prefix cache when their room is needed."""
        self.abort(session)

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """All weights by their Hugging Face names; with `model.lora.rank` the adapters' by peft's."""
        if source is None:
            raise ValueError("vLLM shares no weights with a trainer: update_weights needs them")
        if self._config.model.lora.rank == 0:
            check_names(source, self._names)
        await self._call(self._update(source, version))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.wrap_future(self._submit(self._stop()))
            self._end_thread()

    # Called by whoever asks, in any thread.

    async def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, done in the engine's event loop; if the caller is cancelled, so is the work."""
        if self._closed:
            work.close()
            raise RuntimeError("the inference engine is closed")
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @contextmanager
    def _given_up_cleanly(self) -> Iterator[None]:
        """A start that fails, or is interrupted while it waits, leaves no process behind."""
        before = set(multiprocessing.active_children())
        try:
            yield
        except BaseException:
            self._closed = True
            for process in set(multiprocessing.active_children()) - before:
                process.kill()
            self._end_thread()
            raise

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._files.cleanup()

    # Called in the engine's event loop only.

    async def _start(self, model_dir: str) -> None:
        self._vllm = start_vllm(model_dir, self._config, self._log)
        if self._closed:  # whoever wanted it has given up
            self._vllm.shutdown(timeout=0)
        else:
            await self._vllm.collective_rpc("end_with", args=(os.getpid(),))

    async def _stop(self) -> None:
        for request in self._requests.values():
            self._end(request, FinishReason.ABORTED)
        while self._requests:
            await asyncio.sleep(0.01)
        self._vllm.shutdown(timeout=2)  # killed then: nothing is lost
        self._vllm = None
        gc.collect()  # its destructor fails in an interpreter that is ending

    async def _generate(
        self, prompt_ids: list[int], sampling: SamplingParams, seed: int, session: str, deadline: float | None
    ) -> Completion:
        if session in self._requests:
            raise RuntimeError(f"session {session!r} still runs a request")
        request = self._requests[session] = _Request()
        timer = (
            self._loop.call_at(deadline, self._end, request, FinishReason.DEADLINE) if deadline is not None else None
        )
        try:
            if deadline is not None and deadline <= self._loop.time():
                request.reason = FinishReason.DEADLINE
            await self._admission(request)
            if request.reason is not None:
                return Completion([], [], [], request.reason)
            room = self._config.model.max_context - len(prompt_ids)
            if room <= 0:
                return Completion([], [], [], FinishReason.CONTEXT)
            version = self._version
            output = await self._sample(prompt_ids, _vllm_params(sampling, seed, room), request)
            return _completion(output, sampling, request.reason, version)
        finally:
            if timer is not None:
                timer.cancel()
            del self._requests[session]

    async def _admission(self, request: _Request) -> None:
        """Wait while weights are updated, unless the request ends meanwhile."""
        while not self._may_start.is_set() and request.reason is None:
            waits = [asyncio.ensure_future(event.wait()) for event in (self._may_start, request.ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _sample(self, prompt_ids: list[int], params: Any, request: _Request) -> Any:
        number = str(next(self._numbers))
        self._sampling.add(number)
        self._none_sampling.clear()
        outputs = None
        try:
            outputs = await self._vllm.add_request(
                number, {"prompt_token_ids": prompt_ids}, params, lora_request=self._adapter
            )
            request.vllm_id = outputs.request_id
            if request.reason is not None:  # it was ended before vLLM knew it
                await self._vllm.abort(outputs.request_id, internal=True)
            return await outputs.get()
        except asyncio.CancelledError:
            if outputs is not None:
                await self._vllm.abort(outputs.request_id, internal=True)
            raise
        except _dead_error() as error:
            raise self._lost() from error
        finally:
            self._sampling.discard(number)
            if not self._sampling:
                self._none_sampling.set()

    async def _abort(self, session: str) -> None:
        """A coroutine as `_generate` is: it starts after a request that was made before it."""
        if session in self._requests:
            self._end(self._requests[session], FinishReason.ABORTED)

    def _end(self, request: _Request, reason: FinishReason) -> None:
        """End a request with what it has; one that has ended already is left as it is."""
        if request.reason is not None:
            return
        request.reason = reason
        request.ended.set()
        if request.vllm_id is not None:
            self._background(self._vllm.abort(request.vllm_id, internal=True))

    async def _score(self, ids: list[int]) -> list[float]:
        from vllm import SamplingParams as VllmParams

        params = VllmParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        request = _Request()
        if self._config.model.lora.rank > 0:
            # With adapters, vLLM dies of a batch in which some want their prompt's log-probs and others sample.
            async with self._nothing_sampling():
                output = await self._sample(ids, params, request)
        else:
            await self._admission(request)
            output = await self._sample(ids, params, request)
        positions = output.prompt_logprobs[1:]
        return [position[token].logprob for position, token in zip(positions, ids[1:], strict=True)]

    async def _update(self, source: dict[str, torch.Tensor], version: int) -> None:
        async with self._nothing_sampling():
            if self._config.model.lora.rank > 0:
                await self._load_adapters(source)
            else:
                await self._load_weights(source)
            if not await self._answer(self._vllm.reset_prefix_cache()):
                raise RuntimeError("vLLM did not empty its prefix cache")
            self._version = version

    @asynccontextmanager
    async def _nothing_sampling(self) -> AsyncIterator[None]:
        """What is being sampled ends first, and what comes waits."""
        async with self._alone:
            self._may_start.clear()
            try:
                await self._none_sampling.wait()
                yield
            finally:
                self._may_start.set()

    async def _load_weights(self, source: dict[str, torch.Tensor]) -> None:
        with weight_file(source, getattr(torch, self._config.rollout.vllm.dtype)) as path:
            await self._answer(self._vllm.collective_rpc("receive_weights", args=(str(path),)))

    async def _load_adapters(self, source: dict[str, torch.Tensor]) -> None:
        from vllm.lora.request import LoRARequest

        directory = Path(self._files.name) / ADAPTER
        write_adapters(source, self._config.model.lora, directory)
        await self._answer(self._vllm.add_lora(LoRARequest(ADAPTER, 1, str(directory), load_inplace=True)))
        self._adapter = LoRARequest(ADAPTER, 1, str(directory))

    async def _answer(self, call: Coroutine[Any, Any, Result]) -> Result:
        """The result of a call to vLLM's processes, which is never answered if they are gone."""
        task = asyncio.ensure_future(call)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=0.5)
                if self._vllm.errored and not task.done():
                    raise self._lost()
            return task.result()
        except _dead_error() as error:
            raise self._lost() from error
        finally:
            task.cancel()

    def _lost(self) -> EngineLost:
        return EngineLost(f"vLLM's process is gone. {last_error(self._log)}")

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start `work`; what it raises is logged by the event loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _dead_error() -> type[Exception]:
    from vllm.v1.engine.exceptions import EngineDeadError

    dead: type[Exception] = EngineDeadError
    return dead


def _vllm_params(sampling: SamplingParams, seed: int, room: int) -> Any:
    from vllm import SamplingParams as VllmParams
    from vllm.sampling_params import RequestOutputKind

    if sampling.temperature > 2:
        raise UserError(f"vLLM samples at temperatures of at most 2, not {sampling.temperature:g}.")
    return VllmParams(
        max_tokens=min(sampling.max_tokens, room),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=seed,
        stop_token_ids=sorted(sampling.stop_token_ids),
        ignore_eos=True,  # nothing stops but `stop_token_ids`
        logprobs=0,  # that of the sampled token
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _completion(output: Any, sampling: SamplingParams, ended_by: FinishReason | None, version: int) -> Completion:
    sampled = output.outputs[0]
    token_ids = list(sampled.token_ids)
    log_probs = [0.0] * len(token_ids) if sampling.temperature == 0 else list(sampled.logprobs.logprobs)
    if not math.isfinite(sum(log_probs)):
        raise FloatingPointError("the model's logits are not finite: its weights hold NaN or infinity")
    return Completion(token_ids, log_probs, [version] * len(token_ids), _finish_reason(sampled, sampling, ended_by))


def _finish_reason(sampled: Any, sampling: SamplingParams, ended_by: FinishReason | None) -> FinishReason:
    if sampled.finish_reason == "stop":
        return FinishReason.STOP
    if sampled.finish_reason == "length":
        return FinishReason.LENGTH if len(sampled.token_ids) >= sampling.max_tokens else FinishReason.CONTEXT
    if ended_by is None:
        raise RuntimeError(f"vLLM ended a request by itself: {sampled.finish_reason}")
    return ended_by
