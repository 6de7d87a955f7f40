"""Episodes written by hand, where a test must know every token."""

from typing import Any

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.envs.base import Task


def turn(start: int, token_ids: list[int], **details: Any) -> Turn:
    defaults = {"text": "Action: up", "action": "up", "invalid_reason": None, "state_key": "0,0"}
    return Turn(
        start=start,
        token_ids=token_ids,
        log_probs=[-0.125 * token for token in token_ids],
        versions=[7] * len(token_ids),
        **{**defaults, **details},
    )


def two_segment_episode() -> Episode:
    """Prompt 1 2, sampled 3 4, seen 5, sampled 6 7; then anew: prompt 1 9, sampled 8."""
    first = Segment(
        ids=[1, 2, 3, 4, 5, 6, 7],
        prompt_length=2,
        turns=[
            turn(2, [3, 4], reward=-0.1, observation="wall — «übel»\nline", generate_seconds=0.25, env_seconds=0.001),
            turn(5, [6, 7], action=None, invalid_reason="no action", text="hm", reward=-0.05),
        ],
    )
    second = Segment(ids=[1, 9, 8], prompt_length=2, turns=[turn(2, [8], reward=1.0, state_key=None)])
    return Episode(
        task=Task("maze", "maze-4-17", seed=3, prompt="Walk.", ground_truth="up", extra={"index": 5}),
        group=2,
        sample=1,
        seed=99,
        segments=[first, second],
        stop_reason=StopReason.DONE,
        success=True,
        scores={"agentgym": 0.85},
    )


def one_segment_episode(stop_reason: StopReason = StopReason.MAX_TURNS) -> Episode:
    """Prompt 1 2 3, sampled 4, seen 5 6."""
    segment = Segment(ids=[1, 2, 3, 4, 5, 6], prompt_length=3, turns=[turn(3, [4], reward=0.5)])
    return Episode(Task("maze", "maze_7"), group=5, sample=0, seed=1, segments=[segment], stop_reason=stop_reason)
