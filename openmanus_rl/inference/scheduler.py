"""What the engine computes next: continuous batching over the rows of the key-value cache.

A step has two forwards at most: a chunk of tokens for the sessions that have several unseen ones, then one token for
every session that is sampling. A request joins and leaves between any two steps. Threads and asyncio are no concern
of this file.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from openmanus_rl.inference.base import Completion, FinishReason
from openmanus_rl.inference.kv_cache import Placement, SlotCache
from openmanus_rl.inference.sampling import Sampler
from openmanus_rl.inference.sessions import Request, Session, SessionTable

Outcome = Completion | BaseException


@dataclass(eq=False)
class DecodeBatch:
    """The sessions that sample, as tensors over the rows from 0 to the last of them; kept until any row changes.

    A row in between that does not sample computes along; what it writes lies beyond its cached tokens.
    """

    sessions: list[Session]
    holes: bool
    """Whether there are rows in between."""
    ids_R1: torch.Tensor
    positions_R1: torch.Tensor
    advance_R1: torch.Tensor
    """1 for rows that sample, 0 for rows in between."""
    highest: int
    """The highest position among the rows that sample."""
    alike: bool
    """Whether all rows are at that position."""
    sampler: Sampler


class Scheduler:
    """Moves every running request forward with each `step`; `take_finished` hands out those that ended."""

    def __init__(self, model: torch.nn.Module, *, max_sessions: int, max_context: int, prefill_tokens: int) -> None:
        self._model = model
        parameter = next(model.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self._max_context = max_context
        self._prefill_tokens = prefill_tokens
        self._cache = SlotCache(max_sessions, max_context)
        self._sessions = SessionTable(self._cache, max_sessions)
        self._waiting: deque[Request] = deque()
        self._busy_names: set[str] = set()
        """The sessions with a request, running or waiting."""
        self._prefilling: list[Session] = []
        self._decoding: list[Session] = []
        self._batch: DecodeBatch | None = None
        """The tensors of `_decoding`; None when it has changed."""
        self._finished: list[tuple[Request, Outcome]] = []
        self.version = 0

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._prefilling or self._decoding)

    def add(self, request: Request) -> None:
        """Queue a request; it joins at the next step, or when a row is free."""
        if request.session in self._busy_names:
            error = RuntimeError(f"session {request.session!r} has a request that still runs: one turn at a time")
            self._finished.append((request, error))
        elif len(request.ids) >= self._max_context:
            self._finished.append((request, request.completion(FinishReason.CONTEXT)))
        else:
            self._busy_names.add(request.session)
            self._waiting.append(request)

    def end(self, condition: Callable[[Request], bool], reason: FinishReason) -> None:
        """End the requests that meet the condition, running or waiting, with what they have sampled."""
        for session in [*self._prefilling, *self._decoding]:
            if condition(session.running):
                self._leave(session, reason)
        self._drop_left()
        ended = [request for request in self._waiting if condition(request)]
        self._waiting = deque(request for request in self._waiting if request not in ended)
        for request in ended:
            self._finish(request, request.completion(reason))

    def release(self, name: str) -> None:
        """Forget a session; a request that it runs ends as aborted."""
        self.end(lambda request: request.session == name, FinishReason.ABORTED)
        self._sessions.remove(name)

    def forget_keys(self) -> None:
        """Drop all keys and values; running requests compute theirs anew before their next token."""
        self._cache.clear()
        self._sessions.remove_idle()
        self._prefilling += self._decoding
        self._decoding, self._batch = [], None
        for session in self._prefilling:
            session.cached = 0

    def fail(self, error: BaseException) -> None:
        """A step broke: end every request that took part with the error, and start again with an empty cache."""
        for session in [*self._prefilling, *self._decoding]:
            if session.request:
                self._finish(session.request, error)
        self._prefilling, self._decoding, self._batch = [], [], None
        self._sessions.remove_all()
        self._cache.clear()

    def take_finished(self) -> list[tuple[Request, Outcome]]:
        """The requests that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def step(self) -> None:
        """Let requests expire and join, then run the two forwards."""
        now = time.monotonic()
        if any(request.deadline <= now for request in self._requests()):
            self.end(lambda request: request.deadline <= now, FinishReason.DEADLINE)
        while self._waiting and self._join(self._waiting[0]):
            self._waiting.popleft()
        if self._prefilling:
            self._prefill()
        if self._decoding:
            self._decode()

    def _requests(self) -> list[Request]:
        return [session.running for session in self._decoding + self._prefilling] + list(self._waiting)

    def _join(self, request: Request) -> bool:
        session = self._sessions.start(request)
        if session is None:
            return False
        if session.cached == len(session.ids) - 1:
            self._decoding.append(session)
            self._batch = None
        else:
            self._prefilling.append(session)
        return True

    def _leave(self, session: Session, reason: FinishReason) -> None:
        self._finish(session.running, session.running.completion(reason))
        self._sessions.stop(session)

    def _finish(self, request: Request, outcome: Outcome) -> None:
        self._busy_names.remove(request.session)
        self._finished.append((request, outcome))

    def _drop_left(self) -> None:
        """Take the sessions whose request has ended out of the lists."""
        self._prefilling = [session for session in self._prefilling if session.request]
        self._decoding = [session for session in self._decoding if session.request]
        self._batch = None

    def _prefill(self) -> None:
        """One chunk for every session with unseen tokens, in equal shares: a long prompt delays no one for long."""
        sessions = sorted(self._prefilling[: self._prefill_tokens], key=lambda session: session.row)
        share = self._prefill_tokens // len(sessions)
        chunks = [session.ids[session.cached : session.cached + share] for session in sessions]
        placement = self._place_chunks(sessions, chunks)
        width = placement.positions_RT.shape[1]
        # Padding stands on the left, so that the last column holds the last token of every row.
        ids_RT = torch.tensor([[0] * (width - len(chunk)) + chunk for chunk in chunks], device=self._device)
        logits_RV = self._forward(ids_RT, placement)
        for session, chunk in zip(sessions, chunks, strict=True):
            session.cached += len(chunk)
        self._batch = None  # its rows in between would write where these chunks now are
        done = [index for index, session in enumerate(sessions) if session.cached == len(session.ids)]
        if not done:
            return
        ready = [sessions[index] for index in done]
        self._prefilling = [session for session in self._prefilling if session.cached < len(session.ids)]
        self._decoding += ready
        if len(done) < len(sessions):
            logits_RV = logits_RV[done]
        tokens_R, log_probs_R = self._sampler(ready)(logits_RV)
        self._accept(ready, tokens_R.tolist(), log_probs_R.tolist())

    def _place_chunks(self, sessions: list[Session], chunks: list[list[int]]) -> Placement:
        starts = [session.cached for session in sessions]
        ends = [start + len(chunk) for start, chunk in zip(starts, chunks, strict=True)]
        width = max(len(chunk) for chunk in chunks)
        first, last = sessions[0].row, sessions[-1].row
        self._cache.reserve(last + 1, max(ends) + 1)
        ends_R1 = torch.tensor(ends, device=self._device).unsqueeze(1)
        positions_RT = ends_R1 - width + torch.arange(width, device=self._device)
        alike = len(set(starts)) == 1 and len(set(ends)) == 1
        if not alike:
            # Padding writes to the position after the chunk, where the next token will overwrite it.
            starts_R1 = torch.tensor(starts, device=self._device).unsqueeze(1)
            positions_RT = torch.where(positions_RT < starts_R1, ends_R1, positions_RT)
        rows: slice | torch.Tensor = slice(first, last + 1)
        if last - first >= len(sessions):
            rows = torch.tensor([session.row for session in sessions], device=self._device)
        return Placement(rows, positions_RT, length=max(ends), start=starts[0] if alike else None)

    def _decode(self) -> None:
        """One more token for every session that samples."""
        batch = self._batch = self._batch or self._build_batch()
        rows = len(batch.ids_R1)
        # One position more than is written: a session that ends here may be a row in between later.
        self._cache.reserve(rows, batch.highest + 2)
        start = batch.highest if batch.alike else None
        placement = Placement(slice(0, rows), batch.positions_R1, length=batch.highest + 1, start=start)
        tokens_R, log_probs_R = batch.sampler(self._forward(batch.ids_R1, placement))
        batch.ids_R1 = tokens_R.unsqueeze(1)
        batch.positions_R1 += batch.advance_R1
        batch.highest += 1
        tokens, log_probs = tokens_R.tolist(), log_probs_R.tolist()
        if batch.holes:
            tokens = [tokens[session.row] for session in batch.sessions]
            log_probs = [log_probs[session.row] for session in batch.sessions]
        for session in batch.sessions:
            session.cached += 1
        self._accept(batch.sessions, tokens, log_probs)

    def _build_batch(self) -> DecodeBatch:
        sessions = self._decoding
        if max(session.row for session in sessions) >= 2 * len(sessions):
            self._sessions.compact(sessions)
        sessions = sorted(sessions, key=lambda session: session.row)
        rows = [self._sessions.at(row) for row in range(sessions[-1].row + 1)]
        samples = set(sessions)
        ids = [row.ids[row.cached] if row in samples and row else 0 for row in rows]
        positions = [row.cached if row else 0 for row in rows]
        advance = [int(row in samples) for row in rows]
        highest = max(session.cached for session in sessions)
        holes = len(rows) > len(sessions)
        return DecodeBatch(
            sessions=sessions,
            holes=holes,
            ids_R1=torch.tensor(ids, device=self._device).unsqueeze(1),
            positions_R1=torch.tensor(positions, device=self._device).unsqueeze(1),
            advance_R1=torch.tensor(advance, device=self._device).unsqueeze(1),
            highest=highest,
            alike=not holes and all(session.cached == highest for session in sessions),
            sampler=self._sampler([row if row in samples and row else sessions[0] for row in rows]),
        )

    def _sampler(self, sessions: Sequence[Session]) -> Sampler:
        requests = [session.running for session in sessions]
        return Sampler(
            [request.sampling for request in requests],
            [request.seed for request in requests],
            [len(request.log_probs) for request in requests],
            self._device,
        )

    def _forward(
        self, ids_RT: torch.Tensor, placement: Placement, positions_RT: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The logits of the last column, [R, V]. Positions are those of the placement where none are given."""
        self._cache.place(placement)
        output = self._model(
            input_ids=ids_RT,
            position_ids=placement.positions_RT if positions_RT is None else positions_RT,
            attention_mask=placement.attention_mask(self._dtype),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_RV: torch.Tensor = output.logits[:, -1]
        return logits_RV

    def _accept(self, sessions: list[Session], tokens: list[int], log_probs: list[float]) -> None:
        """Append what was sampled, and let the requests leave that are complete."""
        if not math.isfinite(sum(log_probs)):
            raise FloatingPointError("the model's logits are not finite: its weights hold NaN or infinity")
        left = False
        for session, token, log_prob in zip(sessions, tokens, log_probs, strict=True):
            request = session.running
            request.ids.append(token)
            request.log_probs.append(log_prob)
            request.versions.append(self.version)
            reason = self._finish_reason(request, token)
            if reason is not None:
                self._leave(session, reason)
                left = True
        if left:
            self._drop_left()

    def _finish_reason(self, request: Request, token: int) -> FinishReason | None:
        if token in request.sampling.stop_token_ids:
            return FinishReason.STOP
        if len(request.log_probs) >= request.sampling.max_tokens:
            return FinishReason.LENGTH
        if len(request.ids) >= self._max_context:
            return FinishReason.CONTEXT
        return None
