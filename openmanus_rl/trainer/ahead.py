"""Episodes of later steps, played while this one trains (`rollout.ahead`).

A thread plays step after step with an agent of its own. The episodes of a step may begin when the engine's policy is at
most `ahead` versions behind the one that will learn from them; new weights reach the engine while they are under way,
and each token knows which it was sampled with.

Nothing that was played ahead belongs to the run until it is taken: tasks are drawn from a copy of the sampler, so a
checkpoint holds the place of what was trained on, and a resumed run draws what was under way again.
"""

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.data.sampler import Sampler
from openmanus_rl.protocol import DataProto

Rollout = tuple[DataProto, list[Episode], dict[str, float]]
"""The rows to learn from, the episodes they come from with those that failed, and metrics."""

POLL_SECONDS = 0.05
"""Between two tries to interrupt the thread: it may be between two plays, where there is nothing to interrupt."""


@dataclass(frozen=True)
class PlayedStep:
    """The episodes of one step, how long they took, and where the sampler stood after their tasks were drawn."""

    result: Rollout
    seconds: float
    drawn: dict[str, Any]


Play = Callable[[OpenManusAgent, Sampler, int], Rollout]
"""Plays a step with an agent, on tasks from a sampler."""


class StepsAhead:
    """What `take` returns was begun up to `ahead` steps before."""

    def __init__(self, make_agent: Callable[[], OpenManusAgent], play: Play, ahead: int, last_step: int) -> None:
        self._make_agent = make_agent
        self._play = play
        self._ahead = ahead
        self._last_step = last_step
        self._version = 0
        self._thread: threading.Thread | None = None
        self._agent: OpenManusAgent | None = None
        """The thread's, while there is something in it to interrupt."""
        self._changed = threading.Condition()
        self._played: deque[PlayedStep] = deque()
        self._next_step = 0
        self._stopping = False
        self._error: BaseException | None = None

    def policy_is(self, version: int) -> None:
        """The engine samples with `version` from now on: the steps that waited for it may begin."""
        with self._changed:
            self._version = version
            self._changed.notify_all()

    def take(self, step: int, sampler: Sampler) -> PlayedStep:
        """Wait for the episodes of `step`, and move `sampler` to where it was after their tasks.

        A step that is not the next in line, as after a return to a checkpoint, drops what is under way.
        """
        if self._thread is None or step != self._next_step:
            self.stop()
            self._start(step, sampler)
        with self._changed:
            self._changed.wait_for(lambda: self._played or self._error)
            if not self._played:
                assert self._error is not None
                raise self._error
            played = self._played.popleft()
            self._next_step = step + 1
        sampler.load_state_dict(played.drawn)
        return played

    def stop(self) -> None:
        """End the thread, and drop what it plays and has played."""
        if self._thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        while self._thread.is_alive():
            with self._changed:
                if self._agent is not None:
                    self._agent.interrupt()
            self._thread.join(POLL_SECONDS)
        self._thread, self._error, self._stopping = None, None, False
        self._played.clear()

    def _start(self, step: int, sampler: Sampler) -> None:
        self._next_step = step
        self._agent = self._make_agent()
        self._thread = threading.Thread(
            target=self._work, args=(self._agent, copy.deepcopy(sampler), step), name="steps ahead", daemon=True
        )
        self._thread.start()

    def _work(self, agent: OpenManusAgent, sampler: Sampler, first_step: int) -> None:
        """The thread: the agent and its event loop are its own."""
        try:
            with closing(agent):
                try:
                    self._play_steps(agent, sampler, first_step)
                finally:
                    with self._changed:
                        self._agent = None
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever takes the next step, and is raised there
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _play_steps(self, agent: OpenManusAgent, sampler: Sampler, first_step: int) -> None:
        for step in range(first_step, self._last_step + 1):
            with self._changed:
                self._changed.wait_for(partial(self._may_begin_or_end, step))
                if self._stopping:
                    return
            began = time.monotonic()
            result = self._play(agent, sampler, step)
            played = PlayedStep(result, time.monotonic() - began, sampler.state_dict())
            with self._changed:
                self._played.append(played)
                self._changed.notify_all()

    def _may_begin_or_end(self, step: int) -> bool:
        return self._stopping or self._version >= step - 1 - self._ahead
