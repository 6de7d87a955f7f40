"""A checkpoint as a model directory for others: weights, tokenizer, and a card of what was trained on what."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from openmanus_rl.config.load import config_to_yaml
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_text, written_aside
from openmanus_rl.models.load import has_adapters, load_tokenizer, load_whole_model, save_model
from openmanus_rl.tracking.checkpoints import Checkpoint, best_checkpoint, find_damage, latest_checkpoint, read_manifest
from openmanus_rl.tracking.run_directory import RunPaths
from openmanus_rl.tracking.stats import Interval
from openmanus_rl.trainer.checked_config import load_run_config
from openmanus_rl.trainer.standalone import run_of
from openmanus_rl.trainer.state import STATE_FILE, Progress
from openmanus_rl.workers.actor import MODEL_DIRECTORY

CARD = "README.md"


def export(source: Path, output: Path, merge_lora: bool, best: bool) -> Checkpoint:
    """Write the model of a run or of one of its checkpoints to `output`, all or nothing; which checkpoint it was."""
    run = run_of(source)
    if run is None:
        raise UserError(f"{source} is no run and no checkpoint of one.", "For example: runs/maze-grpo")
    if output.exists():
        raise UserError(f"{output} is there already.", "Give a new directory with --output, or remove that one.")
    checkpoint = _chosen(run, source, best)
    model = checkpoint.path / MODEL_DIRECTORY
    if merge_lora and not has_adapters(model):
        raise UserError(
            f"{checkpoint.path} has no adapters to merge: all its weights were trained.", "Leave --merge-lora out."
        )
    with written_aside(output) as aside:
        if merge_lora:
            save_model(load_whole_model(model), load_tokenizer(model), aside)
        else:
            shutil.copytree(model, aside)
        write_text(aside / CARD, model_card(run, checkpoint, output.name, merge_lora))
    return checkpoint


def model_card(run: Path, checkpoint: Checkpoint, name: str, merged: bool) -> str:
    """What was trained on what, with which result: from the run directory alone."""
    paths = RunPaths(run)
    config = load_run_config(paths.config, [])
    versions = json.loads(paths.versions.read_text())
    progress = Progress(**torch.load(checkpoint.path / STATE_FILE, weights_only=True)["progress"])
    adapters = has_adapters(checkpoint.path / MODEL_DIRECTORY)
    packages = {"openmanus_rl": versions["openmanus_rl"], "python": versions["python"], **versions["packages"]}
    commit = versions["git"]
    return f"""---
library_name: {"peft" if adapters and not merged else "transformers"}
pipeline_tag: text-generation
tags: [reinforcement-learning, agent, openmanus-rl, {config.algorithm.estimator}]
---

# {name}

A language-model agent trained by reinforcement learning with OpenManus-RL.

| | |
|---|---|
| played | {", ".join(_world(world.name, world.options) for world in config.worlds)} |
| algorithm | `{config.algorithm.estimator}` |
| started from | {_origin(config)} |
| weights | {_weights(config, adapters, merged)} |
| checkpoint | step {checkpoint.step} of {config.trainer.steps} |
| trained on | {progress.episodes:,} episodes of {config.data.train_tasks:,} tasks, {progress.sampled_tokens:,} tokens |
| seed | {config.trainer.seed} |

## Result

Success on {config.data.validation_tasks} held-out tasks, with Wilson's 95 % interval and the number of episodes. The
best checkpoint is kept by this measure; for a figure that nothing was chosen on, evaluate on the test split.

| | success |
|---|---|
| before training | {_interval(progress.success_before)} |
| {_when(progress, checkpoint)} | {_interval(progress.success_after)} |

## How it plays

It was trained with the action format `{config.agent.template}` and at most {config.agent.max_turns} turns, and measured
at temperature {config.rollout.validation_temperature:g}.

## Made with

{", ".join(f"{package} {version}" for package, version in packages.items() if version)};
{f"commit {commit['commit'][:12]}{' with changes' if commit['changed'] else ''}" if commit else "no commit known"};
{versions["platform"]}.

```yaml
{config_to_yaml(config)}```
"""


def _chosen(run: Path, source: Path, best: bool) -> Checkpoint:
    """The checkpoint that `source` is in, or the newest or best of the run that it is."""
    paths = RunPaths(run)
    within = source.resolve()
    if within != run:
        path = next((p for p in (within, *within.parents) if p.parent == paths.checkpoints), None)
        if path is None or best:
            raise UserError(f"{source} is no run.", "Give a run with --best, or one of its checkpoints without.")
        if damage := find_damage(path):
            raise UserError(f"{path} is damaged: {damage}.", "Export another checkpoint of the run.")
        return Checkpoint(read_manifest(path)["step"], path)
    found = best_checkpoint(paths.checkpoints) if best else latest_checkpoint(paths.checkpoints)
    if found is None:
        raise UserError(f"{run} has no checkpoint yet.", "Let the run reach its first one (trainer.save_every).")
    return found


def _world(name: str, options: dict[str, Any]) -> str:
    return f"`{name}`" + (f" with {options}" if options else "")


def _origin(config: RunConfig) -> str:
    made = "built for this world" if config.model.path == "tiny" else f"`{config.model.path}`"
    taught = f", warm-started on {config.warm_start.demonstrations} demonstrations" if config.warm_starts else ""
    return made + taught


def _weights(config: RunConfig, adapters: bool, merged: bool) -> str:
    if not adapters:
        return "all trained"
    return f"LoRA of rank {config.model.lora.rank}, {'merged' if merged else 'as adapters'}"


def _when(progress: Progress, checkpoint: Checkpoint) -> str:
    if progress.measured_at in (None, checkpoint.step):
        return f"at this checkpoint (step {checkpoint.step})"
    return f"when last measured (step {progress.measured_at})"


def _interval(success: dict[str, Any]) -> str:
    return str(Interval(**success)) if success else "not measured"
