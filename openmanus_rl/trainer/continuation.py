"""Going on with a run that `trainer.resume` names: what may differ from the call that began it."""

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from openmanus_rl.config.load import differing_keys, load_config
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.run_directory import RunDirectory, RunPaths, existing_run
from openmanus_rl.trainer.checked_config import load_run_config, script_of

_MAY_CHANGE = (
    "env.num_servers",
    "env.base_port",
    "env.urls",
    "env.request_timeout",
    "envs.*.num_servers",
    "envs.*.base_port",
    "envs.*.urls",
    "envs.*.request_timeout",
    "data.dir",
    "rollout.concurrency",
    "rollout.episode_timeout",
    "rollout.retries",
    "algorithm.reward_timeout",
    "algorithm.reward_judge.url",
    "algorithm.reward_judge.timeout",
    "algorithm.reward_judge.budget",
    "*.micro_batch_tokens",
    "*.layout",
    "*.gradient_checkpointing",
    "*.offload_optimiser",
    "trainer.steps",
    "trainer.max_seconds",
    "trainer.runs_dir",
    "trainer.name",
    "trainer.name_suffix",
    "trainer.resume",
    "trainer.validate_every",
    "trainer.save_every",
    "trainer.keep_checkpoints",
    "trainer.cache_dir",
    "trainer.threads",
    "trainer.executor",
    "trainer.max_restarts",
    "cluster.*",
    "rollout.engine",
    "rollout.vllm.*",
    "rollout.canary_tolerance",
    "guard.*",
    "tracking.*",
)
"""How far and on what a run goes. All else says what is learnt, and a checkpoint holds what came of that."""

_DECIDES_BITS = (
    "*.micro_batch_tokens",
    "*.layout",
    "trainer.threads",
    "trainer.executor",
    "cluster.*",
    "rollout.engine",
)
"""What changes the rounding of sums, and so the bits of a deterministic run, though not what it learns."""


def stored_config(run: Path, overrides: Sequence[str], algorithm: str | None = None) -> RunConfig:
    """The config of the run at `run` with overrides. `algorithm` is the script that was called: grpo or ppo."""
    config = load_run_config(RunPaths(existing_run(run)).config, overrides)
    fitting = script_of(config)
    if algorithm not in (None, fitting):
        raise UserError(
            f"{run} was trained with {config.algorithm.estimator}; it cannot go on with {algorithm}.",
            f"Use ./train_{fitting}.sh trainer.resume={run}, or start a new run with trainer.resume=never.",
        )
    return config


def check_changes(run: RunDirectory, config: RunConfig) -> dict[str, list[Any]]:
    """What differs from the run's stored config, as `{key: [before, now]}`.

    A change that a checkpoint cannot follow is refused, and so is a run that is finished.
    """
    changed: dict[str, list[Any]] = {}
    for key, before, now in differing_keys(load_config(run.config), config):
        if not any(fnmatch(key, pattern) for pattern in _MAY_CHANGE):
            raise UserError(
                f"{run.path} was trained with {key}={before}; it cannot go on with {key}={now}.",
                f"Leave it, or start a new run with trainer.resume=never --model {run.checkpoints}/<step>/actor.",
            )
        if config.trainer.deterministic and any(fnmatch(key, pattern) for pattern in _DECIDES_BITS):
            raise UserError(
                f"{run.path} is deterministic and was trained with {key}={before}: with {now} its bits would differ.",
                f"Leave {key} as it was; only a run without trainer.deterministic can change it.",
            )
        changed[key] = [before, now]
    _refuse_finished(run, config)
    return changed


def take_over(run: RunDirectory, config: RunConfig, changed: dict[str, list[Any]]) -> None:
    """From here on the run is this call's: unfinished, with its config. What was changed is kept in the events."""
    run.summary.unlink(missing_ok=True)
    run.write_config(config)
    run.log_event("resumed", changed=changed)


def _refuse_finished(run: RunDirectory, config: RunConfig) -> None:
    if not run.summary.exists():
        return
    summary = json.loads(run.summary.read_text())
    steps, limit = summary["steps"], config.trainer.max_seconds
    if limit is not None and limit <= summary["train_seconds"]:
        raise UserError(
            f"{run.path} is finished: it has trained for {summary['train_seconds']:.0f} seconds.",
            f"Train it further with trainer.max_seconds={2 * limit:g}, or start a new run with trainer.resume=never.",
        )
    if config.trainer.steps <= steps:
        raise UserError(
            f"{run.path} is finished: its {steps} steps are done.",
            f"Train it further with trainer.steps={2 * steps}, or start a new run with trainer.resume=never.",
        )
