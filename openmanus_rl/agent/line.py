"""A line of play: an episode under way, the world it is in, and the context that the model sees.

A strategy of `strategies/` plays with lines: it lets one take turns, or copies it with its world and goes on with the
copy it likes best.
"""

import itertools
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from openmanus_rl.agent.context import Context, make_context
from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.player import EpisodeRequest, Player
from openmanus_rl.agent.sampling import read, sample
from openmanus_rl.envs.base import stable_hash
from openmanus_rl.envs.client.base import Handle
from openmanus_rl.inference.base import FinishReason, SamplingParams

_CUT_OFF = {FinishReason.ABORTED: StopReason.ABORTED, FinishReason.DEADLINE: StopReason.DEADLINE}


@dataclass
class Shown:
    """A turn that the present segment shows: where its sampled tokens start, and what was seen before it."""

    start: int
    seen: str


class Line:
    """One way that an episode may go. `over` once the episode has ended; `close` frees its world and its session."""

    def __init__(
        self, player: Player, request: EpisodeRequest, handle: Handle, session: str, deadline: float, branch: int = 0
    ) -> None:
        self.player = player
        self.request = request
        self.handle = handle
        self.session = session
        self.deadline = deadline
        self.branch = branch
        """Which of several ways this is: it decides the seeds. 0 is the way that would be played without a choice."""
        self.template = player.template_of(request.task.env)
        self.context: Context = make_context(player.config.context)
        self.episode = Episode(
            request.task, request.group, request.sample, request.seed, first_observation=handle.observation.text
        )
        self.over = False
        self.state_key = handle.state_key
        self.first_observation = player.shorten(handle.observation.text)
        self.seen = self.first_observation
        """What the model saw last."""
        self.shown: list[Shown] = []
        self.max_turns = player.config.max_turns_at(request.step)
        self.family: dict[str, Line] = {session: self}
        """This line and all its copies that are open, by the name of their session."""
        self._numbers = itertools.count(1)

    @property
    def segment(self) -> Segment:
        return self.episode.segments[-1]

    def open_segment(self, observation: str, history: Sequence[int] = (), shown: Sequence[Shown] = ()) -> None:
        """Begin a segment with the task and an observation, and with the tokens of turns that were taken already.

        `shown` are these turns, whose starts are counted from the beginning of `history`.
        """
        task = self.request.task
        opening = self.template.opening(task.prompt or self.handle.instructions, observation)
        prompt = self.player.renderer.prompt_ids(opening)
        ids = [*prompt, *history]
        self.episode.segments.append(Segment(ids=ids, prompt_length=len(ids)))
        self.shown = [replace(turn, start=turn.start + len(prompt)) for turn in shown]

    async def take_turn(self) -> None:
        """Sample an answer, do its action and show what follows; or end the episode, where a budget is spent."""
        if not self.episode.segments:
            self.open_segment(self.first_observation)
        if reason := self.budget_spent() or self._context_full():
            self._end(reason)
            return
        turn = await self._answer()
        if turn is None:
            return
        await self._act(turn)
        if self.episode.stop_reason not in (StopReason.DONE, StopReason.INVALID_ACTION):
            await self._show(turn)

    async def fork(self, branch: int) -> "Line":
        """A copy with a world of its own in the same state."""
        handle = await self.player.client.fork(self.handle)
        name = f"{self.session}.{next(self._numbers)}"
        copy = Line(self.player, self.request, handle, name, self.deadline, branch)
        copy.episode = replace(self.episode, segments=deepcopy(self.episode.segments))
        copy.over, copy.state_key, copy.seen = self.over, self.state_key, self.seen
        copy.first_observation = self.first_observation
        copy.shown = deepcopy(self.shown)
        copy.family, copy._numbers = self.family, self._numbers
        self.family[name] = copy
        return copy

    async def close(self) -> None:
        """Forget the engine's session and end the world's; twice is fine."""
        self.family.pop(self.session, None)
        self.player.engine.release(self.session)
        await self.player.client.close(self.handle)

    def budget_spent(self) -> StopReason | None:
        """Which of the episode's budgets has run out."""
        if len(self.episode.turns) >= self.max_turns:
            return StopReason.MAX_TURNS
        if self.episode.sampled_tokens >= self.player.config.max_episode_tokens:
            return StopReason.TOKEN_BUDGET
        return None

    async def sample(self, max_tokens: int, purpose: str = "") -> Turn | None:
        """Sample into the present segment; None if that ended the episode."""
        left = self.player.config.max_episode_tokens - self.episode.sampled_tokens
        sampling = SamplingParams(
            max_tokens=min(max_tokens, left),
            temperature=self.request.temperature,
            stop_token_ids=self.player.stop_token_ids(self.request.task.env),
        )
        branch = f"/{self.branch}" if self.branch else ""
        seed = stable_hash(f"{self.episode.seed}/{len(self.episode.turns)}{purpose}{branch}") >> 1
        turn, finish = await sample(
            self.player, self.template, self.segment, sampling, seed=seed, session=self.session, deadline=self.deadline
        )
        turn.state_key = None if purpose else self.state_key
        if not purpose:
            self.segment.turns.append(turn)
            self.shown.append(Shown(turn.start, self.seen))
        if finish in _CUT_OFF:
            self.episode.failure = f"generation ended by {finish}"
            self._end(_CUT_OFF[finish])
            return None
        if finish is FinishReason.CONTEXT:
            self._end(StopReason.CONTEXT_FULL)
            return None
        return turn

    def observation_ids(self, turn: Turn, text: str) -> list[int]:
        """The tokens between a turn and the next answer, with `text` as what is seen."""
        ended = bool(turn.token_ids) and turn.token_ids[-1] in self.player.renderer.stop_token_ids
        return self.player.renderer.append_ids(ended, text, self.template.observation_role)

    def has_room(self, tokens: int) -> bool:
        """Whether so many more tokens fit the present segment."""
        return len(self.segment.ids) + tokens <= self.player.max_context

    async def _answer(self) -> Turn | None:
        turn = await self.sample(self.player.config.max_tokens_per_turn)
        if turn is not None:
            read(self.player.renderer, self.template, turn)
        return turn

    async def _act(self, turn: Turn) -> None:
        """Do what was read, or nothing where nothing could be; note what came of it."""
        config = self.player.config
        if turn.action is None:
            turn.reward = -config.invalid_penalty
            turn.observation = self.template.complaint(turn.invalid_reason or "")
            if config.invalid_action == "end":
                self._end(StopReason.INVALID_ACTION)
            return
        began = time.monotonic()
        result, self.state_key = await self.player.client.step(self.handle, turn.action)
        turn.env_seconds = time.monotonic() - began
        turn.reward = result.reward
        turn.observation = result.observation.text
        turn.invalid_reason = result.info.get("invalid")
        self.episode.success = result.success
        if result.terminated:
            self._end(StopReason.DONE)
        elif result.truncated:
            self._end(StopReason.TRUNCATED)

    async def _show(self, turn: Turn) -> None:
        """Append what the turn led to, or begin a new segment with it, where the context says so.

        The observation is appended even after the last turn: the critic reads the value of a cut episode there.
        """
        self.seen = self.player.shorten(turn.observation)
        goes_on = not self.over and self.budget_spent() is None
        if goes_on and self.context.is_due(self, turn) and await self.context.renew(self, turn):
            return
        ids = self.observation_ids(turn, self.seen)
        if self.has_room(len(ids)):
            self.segment.ids.extend(ids)
        elif not self.over:
            self._end(StopReason.CONTEXT_FULL)

    def _context_full(self) -> StopReason | None:
        full = not self.has_room(self.player.config.max_tokens_per_turn)
        return StopReason.CONTEXT_FULL if full else None

    def _end(self, reason: StopReason) -> None:
        self.episode.stop_reason = reason
        self.over = True
