"""A whole run, from a config to a summary: services up, workers made, trained, measured, services down."""

import time
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from openmanus_rl.algorithms.registry import find_estimator
from openmanus_rl.config.load import differing_keys, load_config
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.tasks import directory_name
from openmanus_rl.inference.endpoint import not_for_training
from openmanus_rl.tracking.console import RunConsole, RunReport, Stage
from openmanus_rl.tracking.picture import learning_curve
from openmanus_rl.tracking.run_directory import RunDirectory, choose_run_directory
from openmanus_rl.trainer.continuation import check_changes, take_over
from openmanus_rl.trainer.inputs import prepare_inputs
from openmanus_rl.trainer.ppo import RayPPOTrainer
from openmanus_rl.trainer.restarts import Restarts
from openmanus_rl.trainer.services import environment_servers

INITIAL_MODEL = "initial_model"
"""The model that reinforcement learning started from, in the run directory: what a resumed run refers to."""


def train(config: RunConfig, preset: Path | None = None) -> Path:
    """Run, or go on with a run that was stopped; its directory.

    `preset` is what the config was made from: the run notes what differs from it.
    Ctrl-C (or SIGTERM) in training finishes the step and saves; then `KeyboardInterrupt` is raised as anywhere else.
    """
    if config.rollout.engine == "endpoint":
        raise not_for_training()
    began = time.monotonic()
    torch.set_num_threads(config.trainer.threads)
    torch.manual_seed(config.trainer.seed)
    name = config.trainer.name or f"{directory_name(config.world_names)}-{directory_name(algorithm_name(config))}"
    choice = choose_run_directory(
        Path(config.trainer.runs_dir), name + config.trainer.name_suffix, config, config.trainer.resume
    )
    with (
        RunDirectory(choice.path) as run,
        RunConsole(config.trainer.steps) as console,
        run.ended_by_a_full_disk(),
    ):
        changed = check_changes(run, config) if choice.continues else {}
        if not choice.continues:
            run.begin(config, _made_from(config, preset))
        console.note(f"run directory: {run.path}")
        with (
            environment_servers(config, run.env_logs, console.note) as services,
            services.blamed_for_failures(),
            _cluster(config),
        ):
            places = [f"{name} on {', '.join(urls)}" for name, urls in services.urls.items()]
            console.stage(Stage.SERVICES, "; ".join(places))
            console.stage(Stage.WORKERS)
            inputs = prepare_inputs(config, run.path / INITIAL_MODEL, console.note)
            restarts = Restarts(config.trainer.max_restarts, run, console)
            while restarts.attempt():
                with restarts.after_a_loss():
                    trainer = RayPPOTrainer(config, run, inputs, services.urls, console, began)
                    trainer.init_workers()
                    with closing(trainer):
                        trainer.resume()
                        if choice.continues and not restarts.count:
                            take_over(run, config, changed)
                        _fit(config, run, trainer, console)
    return run.path


def _made_from(config: RunConfig, preset: Path | None) -> dict[str, Any]:
    """The preset's name, and what differs from it as `{key: [preset, run]}`."""
    if preset is None:
        return {}
    changed = {key: [before, now] for key, before, now in differing_keys(load_config(preset), config)}
    return {"preset": preset.name, "changed": changed}


def _cluster(config: RunConfig) -> AbstractContextManager[None]:
    """A connection to Ray for as long as the run needs it."""
    if config.trainer.executor == "inline":
        return nullcontext()
    from openmanus_rl.distributed.cluster import connected

    return connected(config.cluster)


def _fit(config: RunConfig, run: RunDirectory, trainer: RayPPOTrainer, console: RunConsole) -> None:
    before, after = trainer.fit()
    progress = trainer.progress
    learning_curve(run.metrics, run.picture, f"{config.world_names}, {algorithm_name(config)}")
    if not trainer.finished:
        run.log_event("stopped", step=progress.step)
        console.note(f"stopped after step {progress.step} of {config.trainer.steps}; everything is saved in {run.path}")
        console.note(f"the same command goes on from there; or: openmanus-rl train trainer.resume={run.path}")
        raise KeyboardInterrupt
    run.log_event("finished", step=progress.step)
    run.write_summary(
        {
            "env": config.world_names,
            "algorithm": algorithm_name(config),
            "estimator": config.algorithm.estimator,
            "model_parameters": trainer.roles.actor.parameter_count(),
            "success_before": before.to_dict(),
            "success_after": after.to_dict(),
            "train_seconds": round(progress.train_seconds, 1),
            "total_seconds": round(progress.total_seconds, 1),
            "episodes": progress.episodes,
            "sampled_tokens": progress.sampled_tokens,
            "seed": config.trainer.seed,
            "steps": progress.step,
        }
    )
    checkpoint = trainer.checkpoints.latest()
    console.summary(
        RunReport(
            env=config.world_names,
            algorithm=algorithm_name(config),
            before=before,
            after=after,
            train_seconds=progress.train_seconds,
            total_seconds=progress.total_seconds,
            episodes_played=progress.episodes,
            picture=run.picture,
            episodes=run.episodes,
            checkpoint=checkpoint.path if checkpoint else run.checkpoints,
            try_next=_try_next(config, run.path),
        )
    )


def algorithm_name(config: RunConfig) -> str:
    """What users call it: PPO where a critic gives the credit, else the estimator's name."""
    return "ppo" if "critic" in find_estimator(config.algorithm.estimator).requires else config.algorithm.estimator


def _try_next(config: RunConfig, run: Path) -> list[str]:
    evaluation = f".venv/bin/openmanus-rl eval {run} --split test   tasks that nothing was chosen on"
    if config.envs:
        return [evaluation]
    other = "grpo" if algorithm_name(config) == "ppo" else "ppo"
    elsewhere = "maze" if config.env.name == "wordle" else "wordle"
    return [
        f"./train_{other}.sh --env_name {config.env.name}   the same world with {other.upper()}",
        f"./train_grpo.sh --env_name {elsewhere}   another world",
        evaluation,
    ]
