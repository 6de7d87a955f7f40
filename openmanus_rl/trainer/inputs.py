"""What a run starts from: its tasks, and its model, built and warm-started once and kept for the next run."""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from openmanus_rl import __version__
from openmanus_rl.agent.templates import TEMPLATES
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
    directory_name,
    effective_options,
    is_built_for,
    read_tasks,
    tasks_path,
    write_tasks,
)
from openmanus_rl.envs.base import Split, Task
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.files import written_aside
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_tokenizer, load_whole_model, save_model
from openmanus_rl.models.packaged import model_source
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.trainer.examples import conversation_example
from openmanus_rl.trainer.sft import fine_tune, fitting

Progress = Callable[[str], None]

MODEL = "model"
"""The model's directory within its place in the cache."""


@dataclass(frozen=True)
class Inputs:
    """Tasks to train on, tasks to measure on, and the directory of the model that learns."""

    train: list[Task]
    validation: list[Task]
    model_dir: str


def prepare_inputs(config: RunConfig, pinned_model: Path, say: Progress) -> Inputs:
    """Build what is missing; a second run with the same config finds everything in place.

    The model is copied to `pinned_model`, and a run that goes on starts from that, whatever the cache holds by then.
    """
    train = prepare_tasks(config, "train", config.data.train_tasks)
    validation = prepare_tasks(config, "validation", config.data.validation_tasks)
    if not pinned_model.exists():
        model_dir = prepare_model(config, train, say)
        save_model(load_whole_model(model_dir), load_tokenizer(model_dir), pinned_model)
    return Inputs(train, validation, str(pinned_model))


def prepare_tasks(config: RunConfig, split: Split, count: int) -> list[Task]:
    """The first `count` tasks of the split's file. One that is missing, or that was built otherwise, is built."""
    path = tasks_path(config.data.dir, config.env.name, split)
    if not is_built_for(path, config.env.name, config.env.options, count):
        write_tasks(path, build_tasks(config.env.name, split, count, config.env.options), config.env.options)
    return read_tasks(path, config.env.options)[:count]


def prepare_model(config: RunConfig, tasks: list[Task], say: Progress) -> str:
    """The directory or hub id of the model that reinforcement learning starts from."""
    if config.model.path != "tiny" and not config.warm_starts:
        return model_source(config.model.path, config.trainer.cache_dir, say)
    demonstrated = tasks[: config.warm_start.demonstrations]
    world = directory_name(config.env.name)
    home = Path(config.trainer.cache_dir) / f"{world}-{_recipe(config, demonstrated)}"
    if home.exists():
        say(f"model: {home / MODEL} (made by an earlier run)")
        return str(home / MODEL)
    with written_aside(home) as aside:
        demonstrations = (
            read_demonstrations(Path(config.warm_start.data))
            if config.warm_start.data
            else _demonstrations(config, demonstrated, aside / "demonstrations.parquet", say)
        )
        _make_model(config, demonstrations, aside / MODEL, say)
    return str(home / MODEL)


def prepare_demonstrations(config: RunConfig, kept: Path, say: Progress) -> list[Demonstration]:
    """The config's conversations, or those of the world's expert, which are made once and stay at `kept`."""
    if config.warm_start.data is not None:
        return read_demonstrations(Path(config.warm_start.data))
    if kept.exists():
        return read_demonstrations(kept)
    tasks = prepare_tasks(config, "train", config.data.train_tasks)[: config.warm_start.demonstrations]
    return _demonstrations(config, tasks, kept, say)


def prepare_base(config: RunConfig, demonstrations: list[Demonstration], directory: Path, say: Progress) -> None:
    """Put the model at `directory` as it is before any demonstration; one that is there stays."""
    if directory.exists():
        return
    source = model_source(config.model.path, config.trainer.cache_dir, say)
    if source == "tiny":
        _build_tiny(config, demonstrations, directory, say)
    else:
        save_model(load_whole_model(source), load_tokenizer(source), directory)


def _recipe(config: RunConfig, demonstrated: list[Task]) -> str:
    """A name for everything that decides what the model is; the world's own file is, while it is being written."""
    template = TEMPLATES.lookup(config.agent.template)
    described = {
        "version": __version__,
        "env": [config.env.name, effective_options(config.env.name, config.env.options)],
        "world": Path(inspect.getfile(environment_class(config.env.name))).read_text(),
        "format": [template.opening("", ""), template.render("")],
        "max_turns": config.agent.max_turns,
        "model": config.model.model_dump(exclude={"lora"}),
        "warm_start": config.warm_start.model_dump(),
        "data": None
        if config.warm_start.data is None
        else hashlib.sha256(Path(config.warm_start.data).read_bytes()).hexdigest(),
        "tasks": [[task.item_id, task.prompt] for task in demonstrated],
        "seed": config.trainer.seed,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def _make_model(config: RunConfig, demonstrations: list[Demonstration], directory: Path, say: Progress) -> None:
    """Build the tiny model, or take the given one, and warm-start it."""
    with TemporaryDirectory() as scratch:
        base = model_source(config.model.path, config.trainer.cache_dir, say)
        if base == "tiny":
            base = str(Path(scratch) / "untrained") if config.warm_starts else str(directory)
            _build_tiny(config, demonstrations, Path(base), say)
        if config.warm_starts:
            _warm_start(config, base, demonstrations, directory, say)


def _demonstrations(config: RunConfig, tasks: list[Task], path: Path, say: Progress) -> list[Demonstration]:
    warm_start, template = config.warm_start, TEMPLATES.lookup(config.agent.template)
    say(f"demonstrations: {warm_start.demonstrations} by an expert that errs {warm_start.error_rate:.0%} of the time")
    write_demonstrations(
        path,
        demonstrate(
            config.env.name,
            tasks,
            warm_start.error_rate,
            config.trainer.seed,
            config.env.options,
            render_prompt=template.opening,
            render_action=template.render,
            max_turns=config.agent.max_turns,
            count=warm_start.demonstrations,
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
    say(f"model: tiny, {tiny.layers} layers of width {tiny.hidden_size}")


def _warm_start(
    config: RunConfig, base: str, demonstrations: list[Demonstration], directory: Path, say: Progress
) -> None:
    torch.manual_seed(config.trainer.seed)
    model, tokenizer = load_whole_model(base), load_tokenizer(base)

    renderer = ChatRenderer(tokenizer)

    def on_step(step: int, steps: int, metrics: dict[str, float]) -> None:
        if step == 1 or step == steps or step % max(1, steps // 5) == 0:
            say(f"warm start: step {step}/{steps}, loss {metrics['train/loss']:.3f}")

    fine_tune(
        model,
        fitting([conversation_example(each, renderer) for each in demonstrations], config.model.max_context),
        config.warm_start,
        micro_batch_tokens=config.actor.micro_batch_tokens,
        seed=config.trainer.seed,
        on_step=on_step,
    )
    save_model(model, tokenizer, directory)
