"""Evaluation outside a run: a checkpoint, a model directory, chance or the expert."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from openmanus_rl.agent.records import RecordDetails
from openmanus_rl.agent.strategies import find_strategy
from openmanus_rl.agent.transcripts import demonstrations_of
from openmanus_rl.config.load import override_keys
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.demonstrations import write_demonstrations
from openmanus_rl.envs.base import Split
from openmanus_rl.envs.baselines import BaselinePolicy, baseline_success
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.inference.endpoint import EndpointEngine
from openmanus_rl.inference.factory import running_engine
from openmanus_rl.models.load import load_tokenizer
from openmanus_rl.models.packaged import model_source
from openmanus_rl.rewards import RewardManager
from openmanus_rl.tracking.checkpoints import latest_checkpoint
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.run_directory import RunPaths
from openmanus_rl.tracking.stats import Interval, wilson
from openmanus_rl.trainer.agents import make_agent
from openmanus_rl.trainer.checked_config import load_run_config
from openmanus_rl.trainer.evaluate import Evaluation, evaluate
from openmanus_rl.trainer.inputs import prepare_tasks
from openmanus_rl.trainer.services import environment_servers
from openmanus_rl.trainer.side_run import MODEL


@dataclass(frozen=True)
class EvaluationReport:
    """What was evaluated on what, and how it did."""

    env: str
    policy: str
    split: str
    success: Interval
    metrics: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "policy": self.policy,
            "split": self.split,
            "success": self.success.to_dict(),
            "metrics": self.metrics,
        }

    def __str__(self) -> str:
        return f"{self.env}, {self.split} tasks, {self.policy}: success {self.success}"


def run_of(path: Path) -> Path | None:
    """The run directory that `path` is, or that a checkpoint or its model at `path` belongs to."""
    within = path.resolve()
    for candidate in (within, *list(within.parents)[:3]):
        if RunPaths(candidate).config.is_file():
            return candidate
    return None


def config_of(run: Path, overrides: Sequence[str]) -> RunConfig:
    """The config of a run for playing beside it: ports that were asked for belong to the run."""
    config = load_run_config(RunPaths(run).config, overrides)
    if "env.base_port" in override_keys(overrides):
        return config
    free = {"base_port": None}
    envs = {name: world.model_copy(update=free) for name, world in config.envs.items()}
    return config.model_copy(update={"env": config.env.model_copy(update=free), "envs": envs})


def evaluate_baseline(config: RunConfig, policy: str, split: Split, n: int | None) -> EvaluationReport:
    """Chance or the expert, playing the world in this process."""
    if policy not in ("random", "expert"):
        raise UserError(f"--policy {policy} is not known.", "Choose random or expert.")
    chosen: BaselinePolicy = "random" if policy == "random" else "expert"
    count = n or config.data.validation_tasks
    results = [
        baseline_success(world.name, chosen, split, count, config.trainer.seed, world.options)
        for world in config.worlds
    ]
    success = wilson(sum(result.successes for result in results), sum(result.episodes for result in results))
    return EvaluationReport(config.world_names, policy, split, success, {})


def evaluate_model(
    config: RunConfig, model: str, split: Split, n: int | None, episodes_dir: Path | None
) -> EvaluationReport:
    """A model on held-out tasks, as the trainer's validation measures it."""
    torch.set_num_threads(config.trainer.threads)
    weights = model_source(_weights(model), config.trainer.cache_dir)
    with running_engine(config, weights) as engine:
        evaluation = _measure(config, engine, load_tokenizer(weights), split, n, episodes_dir)
    return EvaluationReport(config.world_names, model, split, evaluation.success, evaluation.metrics())


def evaluate_endpoint(
    config: RunConfig, split: Split, n: int | None, episodes_dir: Path | None, demonstrations: Path | None
) -> EvaluationReport:
    """The model behind `rollout.endpoint`; its episodes that succeeded go to the file `demonstrations`."""
    endpoint = config.rollout.endpoint
    engine = EndpointEngine(endpoint)
    evaluation = _measure(config, engine, None, split, n, episodes_dir)
    if demonstrations is not None:
        played_by = {"endpoint": endpoint.url, "model": endpoint.model, "env": config.world_names, "split": split}
        write_demonstrations(demonstrations, demonstrations_of(evaluation.episodes), played_by)
    metrics = {**evaluation.metrics(), "endpoint/tokens": float(engine.tokens_used)}
    return EvaluationReport(config.world_names, endpoint.model, split, evaluation.success, metrics)


def _measure(
    config: RunConfig,
    engine: InferenceEngine,
    tokenizer: PreTrainedTokenizerBase | None,
    split: Split,
    n: int | None,
    episodes_dir: Path | None,
) -> Evaluation:
    tasks = prepare_tasks(config, split, n or config.data.validation_tasks)
    rewards = RewardManager(config.algorithm, config.agent.max_episode_tokens)
    with (
        TemporaryDirectory() as logs,
        environment_servers(config, Path(logs), lambda text: None) as services,
        services.blamed_for_failures(),
        closing(make_agent(config, engine, tokenizer, services.urls, rewards)) as agent,
    ):
        try:
            evaluation = evaluate(
                agent,
                tasks,
                config.trainer.seed,
                config.rollout.validation_temperature,
                config.data.validation_samples,
                find_strategy(config.rollout.validation_strategy, config.rollout.validation_strategy_options),
            )
        finally:
            agent.run(engine.close())  # where it was used: connections belong to an event loop
    if episodes_dir is not None:
        details = RecordDetails(rewards, agent.player.renderer.pieces)
        EpisodeLog(episodes_dir, details).write("validation", 0, evaluation.episodes)
    return evaluation


def _weights(model: str) -> str:
    """The model directory that a run, a checkpoint or a model directory means."""
    path = Path(model)
    if (path / MODEL).is_dir():  # what sft, evolve and dpo leave
        return str(path / MODEL)
    if RunPaths(path).config.is_file() and RunPaths(path).checkpoints.is_dir():
        checkpoint = latest_checkpoint(RunPaths(path).checkpoints)
        if checkpoint is None:
            raise UserError(f"{path} has no checkpoint yet.", "Let the run reach its first one (trainer.save_every).")
        return str(checkpoint.path / "actor")
    return str(path / "actor") if (path / "actor").is_dir() else model
