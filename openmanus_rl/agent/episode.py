"""What an agent did, exactly as it happened: turns inside segments inside an episode.

Token in, token out: a segment is one growing list of token ids; text is decoded for the world and never encoded back.
"""

from array import array
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from openmanus_rl.envs.base import Task


class StopReason(StrEnum):
    """Every way an episode can end. The three sets below say what follows from each."""

    DONE = "done"
    """The world ended the task."""
    TRUNCATED = "truncated"
    """The world's own limit cut the task."""
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"
    """The episode's budget of sampled tokens is spent."""
    CONTEXT_FULL = "context_full"
    """The next turn would not fit the context."""
    INVALID_ACTION = "invalid_action"
    """An action could not be parsed, and the policy for that is to end."""
    ENV_FAILURE = "env_failure"
    ENV_TIMEOUT = "env_timeout"
    ENGINE_FAILURE = "engine_failure"
    REWARD_FAILURE = "reward_failure"
    """The score function raised, and the policy for that is to count the episode as failed."""
    DEADLINE = "deadline"
    """The episode took longer than it may."""
    ABORTED = "aborted"
    """It was not needed any more: enough of its group had ended, or a budget is spent. It is not played again."""

    @classmethod
    def failures(cls) -> "list[StopReason]":
        """The ends by which something went wrong; such an episode is no sample."""
        return [reason for reason in cls if reason in _FAILURES]

    @property
    def is_sample(self) -> bool:
        """Whether the episode may be trained on and counted: a failed episode is not a sample."""
        return self not in _FAILURES and self is not StopReason.ABORTED

    @property
    def is_played(self) -> bool:
        """Whether the world knows how the task went: a sample, or an episode that only its score function failed."""
        return self.is_sample or self is StopReason.REWARD_FAILURE

    @property
    def bootstraps(self) -> bool:
        """Whether the task went on beyond the end: its value there is the critic's, not 0."""
        return self in _CUT_SHORT


_CUT_SHORT = {StopReason.TRUNCATED, StopReason.MAX_TURNS, StopReason.TOKEN_BUDGET, StopReason.CONTEXT_FULL}
_FAILURES = {
    StopReason.ENV_FAILURE,
    StopReason.ENV_TIMEOUT,
    StopReason.ENGINE_FAILURE,
    StopReason.REWARD_FAILURE,
    StopReason.DEADLINE,
}


@dataclass(slots=True)
class Turn:
    """One thought and action of the agent, and what the world made of it.

    Thousands of finished episodes wait for their step's update, so numbers of tokens are kept as arrays of 4 bytes
    each, whatever sequence they are given as.
    """

    start: int
    """Where this turn's sampled tokens begin in its segment."""
    token_ids: Sequence[int]
    log_probs: Sequence[float]
    """Empty, as `versions`, where a model was reached as text only; then nothing can be trained on the turn."""
    versions: Sequence[int]
    text: str
    action: str | None
    invalid_reason: str | None
    """Why the action is not valid, by the template's parser or by the world; None if it is."""
    state_key: str | None
    """The world's state in which the turn was taken."""
    kind: str = "action"
    """What the template found in the answer: `action`, `invalid`, or a type of its own such as `search`."""
    action_span: tuple[int, int] | None = None
    """Which of `token_ids` wrote the action, as a half-open range."""
    finish: str = "stop"
    """Why sampling ended: `stop`, or `length` where the turn's budget of tokens was spent."""
    observation: str = ""
    reward: float = 0.0
    generate_seconds: float = 0.0
    env_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.token_ids = array("i", self.token_ids)
        self.log_probs = array("f", self.log_probs)
        self.versions = array("i", self.versions)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(slots=True)
class Segment:
    """One growing token list; the first `prompt_length` tokens are the prompt."""

    ids: MutableSequence[int]
    """An array, as in a turn."""
    prompt_length: int
    turns: list[Turn] = field(default_factory=list)
    summary: Turn | None = None
    """What the model wrote at the segment's end for the next one to begin with; it is no turn, for it did nothing."""
    trains_summary: bool = False

    def __post_init__(self) -> None:
        self.ids = array("i", self.ids)

    @property
    def sampled(self) -> list[Turn]:
        """Everything that was sampled here, in order: the turns, and the summary."""
        return [*self.turns, self.summary] if self.summary is not None else self.turns

    @property
    def trained(self) -> list[Turn]:
        """What of it is trained on."""
        return self.sampled if self.trains_summary else self.turns


@dataclass(slots=True)
class Episode:
    """A task played once: its segments (one, unless the context was cut), and how it ended."""

    task: Task
    group: int
    """Episodes of the same task in one step share it; statistics of a group count episodes."""
    sample: int
    """Which of its group's episodes this is."""
    seed: int
    segments: list[Segment] = field(default_factory=list)
    stop_reason: StopReason = StopReason.ABORTED
    success: bool = False
    first_observation: str | None = None
    """What the world showed before the first turn; None where it was not seen."""
    failure: str = ""
    """What broke, where `stop_reason` is a failure."""
    scores: dict[str, float] = field(default_factory=dict)
    """What the score functions said."""
    token_rewards: list[list[tuple[int, float]]] | None = field(default=None, compare=False, repr=False)
    """Where its score fell, once it has one: an episode is scored once."""
    chosen: bool = False
    """Whether its turns were chosen among several that were tried: then they are no sample of the policy."""
    failed_tries: list[StopReason] = field(default_factory=list)
    """Why it was played again, once for each try before this one."""

    @property
    def turns(self) -> list[Turn]:
        return [turn for segment in self.segments for turn in segment.turns]

    @property
    def episode_return(self) -> float:
        """The cumulative environment reward."""
        return sum(turn.reward for turn in self.turns)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.token_ids) for segment in self.segments for turn in segment.sampled)
