"""Run directories as a run writes them, with its own writers but without a run: every number in them is known."""

import json
import math
import random
from pathlib import Path
from typing import Any

import yaml

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.records import RecordDetails, TokenCredit
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.tracking.stats import wilson

ACTIONS = ["up", "down", "left", "right"]


def pieces(ids: list[int]) -> list[str]:
    """Every token is a word of its own."""
    return [f"t{token} " for token in ids]


def episode(
    item: int, group: int = 0, sample: int = 0, actions: tuple[str | None, ...] = ("up", "left"), **given: Any
) -> Episode:
    """A prompt of four tokens, then for each action three sampled tokens and two that the world said."""
    ids = [1, 2, 3, 4]
    turns = []
    for number, action in enumerate(actions):
        sampled = [100 + 10 * number + index for index in range(3)]
        is_last = number == len(actions) - 1
        turns.append(
            Turn(
                start=len(ids),
                token_ids=sampled,
                log_probs=[-0.1, -1.5, -0.5],
                versions=[7, 7, 7],
                text=f"Thought: go on.\nAction: {action}",
                action=action,
                invalid_reason=None if action else "no action was found",
                state_key=f"{number},0",
                observation=given.get("observation", f"You are at {number}."),
                reward=1.0 if is_last and given.get("success") else -0.05,
                generate_seconds=0.25,
                env_seconds=0.002,
            )
        )
        ids += [*sampled, 50, 51]
    return Episode(
        task=Task(
            given.get("env", "maze"),
            given.get("item_id", f"maze_{item}"),
            prompt=given.get("prompt", "Reach the goal."),
            extra={"difficulty": given["difficulty"]} if "difficulty" in given else {},
        ),
        group=group,
        sample=sample,
        seed=item,
        segments=[Segment(ids, 4, turns)],
        stop_reason=given.get("stop_reason", StopReason.DONE),
        success=given.get("success", False),
        failure=given.get("failure", ""),
    )


def credit(played: Episode) -> list[TokenCredit]:
    """Advantage 0.5 for a success, -0.25 otherwise; the trainer finds each token a hundredth less likely."""
    advantage = 0.5 if played.success else -0.25

    def on_sampled(segment: Segment, values: Any) -> list[float | None]:
        out: list[float | None] = [None] * len(segment.ids)
        for turn in segment.turns:
            out[turn.start : turn.end] = [values(log_prob) for log_prob in turn.log_probs]
        return out

    return [
        TokenCredit(on_sampled(part, lambda log_prob: log_prob - 0.01), on_sampled(part, lambda _: advantage))
        for part in played.segments
    ]


def metrics_at(step: int, seed: int = 0, skill: float = 1.0) -> dict[str, float]:
    """A run that learns as runs do."""
    chance = random.Random(f"{seed}/{step}")
    rate = skill * (1 - math.exp(-step / 40)) * 0.85
    noisy = min(1.0, max(0.0, rate + chance.gauss(0, 0.05)))
    return {
        "success/rate": noisy,
        "episode/return/mean": noisy - 0.3,
        "num_turns/mean": 8 - 4 * rate,
        "response_length/mean": 60 - 20 * rate,
        "episode/invalid_actions": 0.2 * math.exp(-step / 10),
        "actor/entropy": 0.9 * math.exp(-step / 60) + 0.1,
        "actor/ppo_kl": 0.004 + 0.002 * chance.random(),
        "actor/grad_norm": 0.5 + 0.2 * chance.random(),
        "rollout/canary_gap": 1e-6,
        "perf/sampled_tokens_per_second": 2000 + 100 * chance.random(),
        "timing_s/gen": 1.0,
        "timing_s/update_actor": 0.5,
        "training/seconds": 1.5 * step,
    }


def validation_at(step: int, rate: float, n: int = 128) -> dict[str, float]:
    interval = wilson(round(rate * n), n)
    return {
        "val/success/rate": interval.rate,
        "val/success/low": interval.low,
        "val/success/high": interval.high,
        "val/success/n": n,
        "val/episode/return/mean": interval.rate - 0.2,
    }


def make_run(
    path: Path, steps: int = 12, final_success: float = 0.75, seed: int = 0, config: dict[str, Any] | None = None
) -> Path:
    """A run of `steps` steps with a validation every four, groups of three episodes, and a checkpoint."""
    path.mkdir(parents=True)
    tree = RunConfig.model_validate({"trainer": {"steps": steps, "seed": seed}, **(config or {})}).model_dump()
    (path / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    events = [
        {"time": 1.7e9, "event": "started", "preset": "maze_grpo.yaml", "changed": {"trainer.steps": [50, steps]}},
        {"time": 1.7e9 + 40, "event": "guard", "step": steps // 2, "reason": "the gradient norm rose"},
    ]
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (path / "checkpoints" / "step_000004").mkdir(parents=True)
    log = MetricsLog(path / "metrics.jsonl")
    episodes = EpisodeLog(path / "episodes", RecordDetails(pieces=pieces))
    for step in range(steps + 1):
        values = metrics_at(step, seed) if step else {}
        if step % 4 == 0:
            values |= validation_at(step, final_success * step / steps)
            episodes.write(
                "validation",
                step,
                [episode(item, success=item % 2 == 0, difficulty=["easy", "hard"][item % 2]) for item in range(6)],
            )
        if step:
            played = [
                episode(step, group, sample, actions=("up", ACTIONS[sample]), success=sample == 0)
                for group in range(2)
                for sample in range(3)
            ]
            episodes.write("train", step, played, credit)
        log.append(step, values)
    log.close()
    return path
