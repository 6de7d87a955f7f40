"""What a run starts from: its tasks, and its model, built and warm-started once and kept for the next run."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from openmanus_rl import __version__
from openmanus_rl.agent.templates import TEMPLATES, opening_messages
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.demonstrations import (
    Demonstration,
    demonstrate,
    read_demonstrations,
    texts,
    write_demonstrations,
)
from openmanus_rl.data.tasks import (
    build_tasks,
    effective_options,
    is_built_for,
    read_tasks,
    tasks_path,
    write_tasks,
)
from openmanus_rl.envs.base import Split, Task
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, save_model
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.trainer.sft import fine_tune

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """Tasks to train on, tasks to measure on, and the directory of the model that learns."""

    train: list[Task]
    validation: list[Task]
    model_dir: str


def prepare_inputs(config: RunConfig, say: Progress) -> Inputs:
    """Build what is missing; a second run with the same config finds everything in place."""
    train = prepare_tasks(config, "train", config.data.train_tasks)
    validation = prepare_tasks(config, "validation", config.data.validation_tasks)
    return Inputs(train, validation, prepare_model(config, train, say))


def prepare_tasks(config: RunConfig, split: Split, count: int) -> list[Task]:
    """The first `count` tasks of the split's file. One that is missing, or that was built otherwise, is built."""
    path = tasks_path(config.data.dir, config.env.name, split)
    if not is_built_for(path, config.env.name, config.env.options, count):
        write_tasks(path, build_tasks(config.env.name, split, count, config.env.options), config.env.options)
    return read_tasks(path, config.env.options)[:count]


def prepare_model(config: RunConfig, tasks: list[Task], say: Progress) -> str:
    """The directory or hub id of the model that reinforcement learning starts from."""
    if config.model.path != "tiny" and not config.warm_starts:
        return config.model.path
    home = Path(config.trainer.cache_dir) / f"{config.env.name.rpartition(':')[2]}-{_recipe(config)}"
    model_dir = home / "model"
    if model_dir.exists():
        say(f"model: {model_dir} (made by an earlier run)")
        return str(model_dir)
    shutil.rmtree(home, ignore_errors=True)
    demonstrations = _demonstrations(config, tasks, home / "demonstrations.parquet", say)
    base = config.model.path
    if base == "tiny":
        base = str(home / "untrained")
        _build_tiny(config, demonstrations, Path(base), say)
    if config.warm_starts:
        _warm_start(config, base, demonstrations, model_dir, say)
    else:
        Path(base).rename(model_dir)
    return str(model_dir)


def fine_tune_to(config: RunConfig, directory: Path, demonstrations_file: Path | None, say: Progress) -> None:
    """Supervised fine-tuning alone: the config's model on given demonstrations, or on those of the world's expert."""
    torch.set_num_threads(config.trainer.threads)
    if demonstrations_file is None:
        tasks = prepare_tasks(config, "train", config.data.train_tasks)
        demonstrations_file = directory.with_name(f"{directory.name}-demonstrations.parquet")
        demonstrations = _demonstrations(config, tasks, demonstrations_file, say)
    else:
        demonstrations = read_demonstrations(demonstrations_file)
    with TemporaryDirectory() as scratch:
        base = config.model.path
        if base == "tiny":
            base = str(Path(scratch) / "untrained")
            _build_tiny(config, demonstrations, Path(base), say)
        _warm_start(config, base, demonstrations, directory, say)
    say(f"model: {directory}")


def _recipe(config: RunConfig) -> str:
    """A name for everything that decides what the model is."""
    described = {
        "version": __version__,
        "env": [config.env.name, effective_options(config.env.name, config.env.options)],
        "template": config.agent.template,
        "model": config.model.model_dump(),
        "warm_start": config.warm_start.model_dump(),
        "train_tasks": config.data.train_tasks,
        "seed": config.trainer.seed,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def _demonstrations(config: RunConfig, tasks: list[Task], path: Path, say: Progress) -> list[Demonstration]:
    warm_start = config.warm_start
    chosen = tasks[: warm_start.demonstrations]
    say(f"demonstrations: {len(chosen)} tasks by an expert that errs in {warm_start.error_rate:.0%} of its actions")
    write_demonstrations(
        path,
        demonstrate(
            config.env.name,
            chosen,
            warm_start.error_rate,
            config.trainer.seed,
            config.env.options,
            render_prompt=opening_messages,
            render_action=TEMPLATES.lookup(config.agent.template).render,
            max_turns=config.agent.max_turns,
        ),
        {"env": config.env.name, "error_rate": warm_start.error_rate, "seed": config.trainer.seed},
    )
    return read_demonstrations(path)


def _build_tiny(config: RunConfig, demonstrations: list[Demonstration], directory: Path, say: Progress) -> None:
    tiny = config.model.tiny
    spec = TinyModelSpec(
        hidden_size=tiny.hidden_size,
        layers=tiny.layers,
        heads=tiny.heads,
        intermediate_size=tiny.intermediate_size,
        vocab_size=tiny.vocab_size,
        max_positions=config.model.max_context,
    )
    build_tiny_model(directory, texts(demonstrations), spec, config.trainer.seed)
    say(f"model: built in {directory}")


def _warm_start(
    config: RunConfig, base: str, demonstrations: list[Demonstration], directory: Path, say: Progress
) -> None:
    torch.manual_seed(config.trainer.seed)
    model, tokenizer = load_causal_lm(base), load_tokenizer(base)

    def on_step(step: int, steps: int, loss: float) -> None:
        if step == 1 or step == steps or step % max(1, steps // 5) == 0:
            say(f"warm start: step {step}/{steps}, loss {loss:.3f}")

    fine_tune(
        model,
        ChatRenderer(tokenizer),
        demonstrations,
        config.warm_start,
        max_context=config.model.max_context,
        seed=config.trainer.seed,
        on_step=on_step,
    )
    save_model(model, tokenizer, directory)
