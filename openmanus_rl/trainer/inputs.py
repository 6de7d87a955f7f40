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
from openmanus_rl.agent.templates import find_template
from openmanus_rl.config.schema import EnvConfig, RunConfig
from openmanus_rl.data.demonstrations import (
    Demonstration,
    demonstrate,
    read_demonstrations,
    texts,
    write_demonstrations,
)
from openmanus_rl.data.sampler import MixedSampler, Sampler, TaskSampler
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
from openmanus_rl.models.load import load_tokenizer, load_whole_model, save_model
from openmanus_rl.models.packaged import model_source
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.trainer.agents import make_renderer
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
    """The first `count` tasks of the split's file, of each world in turn.

    A file that is missing, or that was built otherwise, is built.
    """
    tasks: list[Task] = []
    for world in config.worlds:
        path = tasks_path(config.data.dir, world.name, split)
        if not is_built_for(path, world.name, world.options, count):
            write_tasks(path, build_tasks(world.name, split, count, world.options), world.options, asked=count)
        tasks += read_tasks(path, world.options)[:count]
    return tasks


def make_sampler(tasks: list[Task], config: RunConfig) -> Sampler:
    """The order in which a run draws its tasks; of several worlds, by their weights."""
    if not config.envs:
        return TaskSampler(len(tasks), config.trainer.seed)
    sizes = [sum(task.env == world.name for task in tasks) for world in config.worlds]
    return MixedSampler(sizes, config.world_weights, config.trainer.seed)


def _to_demonstrate(config: RunConfig, tasks: list[Task]) -> list[tuple[EnvConfig, list[Task], int]]:
    """Each world with its tasks and how many demonstrations it gets: by the worlds' weights, at least one."""
    wanted, total = config.warm_start.demonstrations, sum(config.world_weights)
    shares = []
    for world, weight in zip(config.worlds, config.world_weights, strict=True):
        count = max(1, round(wanted * weight / total))
        own = [task for task in tasks if task.env == world.name] if config.envs else tasks
        shares.append((world, own[:count], count))
    return shares


def prepare_model(config: RunConfig, tasks: list[Task], say: Progress) -> str:
    """The directory or hub id of the model that reinforcement learning starts from."""
    if config.model.path != "tiny" and not config.warm_starts:
        return model_source(config.model.path, config.trainer.cache_dir, say)
    demonstrated = _to_demonstrate(config, tasks)
    world = directory_name(config.world_names)
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
    tasks = _to_demonstrate(config, prepare_tasks(config, "train", config.data.train_tasks))
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


def _recipe(config: RunConfig, demonstrated: list[tuple[EnvConfig, list[Task], int]]) -> str:
    """A name for everything that decides what the model is; a world's own file is, while it is being written."""
    templates = [find_template(config.template_in(world)) for world in config.worlds]
    described = {
        "version": __version__,
        "envs": [[world.name, effective_options(world.name, world.options), count] for world, _, count in demonstrated],
        "worlds": [Path(inspect.getfile(environment_class(world.name))).read_text() for world, _, _ in demonstrated],
        "format": [
            [type(t).__qualname__, t.opening("", ""), Path(inspect.getfile(type(t))).read_text()] for t in templates
        ],
        "max_turns": config.agent.max_turns_at(),
        "model": config.model.model_dump(exclude={"lora"}),
        "warm_start": config.warm_start.model_dump(),
        "data": None
        if config.warm_start.data is None
        else hashlib.sha256(Path(config.warm_start.data).read_bytes()).hexdigest(),
        "tasks": [[task.item_id, task.prompt] for _, tasks, _ in demonstrated for task in tasks],
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


def _demonstrations(
    config: RunConfig, shares: list[tuple[EnvConfig, list[Task], int]], path: Path, say: Progress
) -> list[Demonstration]:
    warm_start = config.warm_start
    say(f"demonstrations: {warm_start.demonstrations} by an expert that errs {warm_start.error_rate:.0%} of the time")
    demonstrations: list[Demonstration] = []
    for world, tasks, count in shares:
        template = find_template(config.template_in(world))
        demonstrations += demonstrate(
            world.name,
            tasks,
            warm_start.error_rate,
            config.trainer.seed,
            {**world.options, **warm_start.env_options},
            render_prompt=template.opening,
            render_action=template.render,
            observation_role=template.observation_role,
            max_turns=config.agent.max_turns_at(),
            count=count,
        )
    write_demonstrations(
        path,
        demonstrations,
        {"env": config.world_names, "error_rate": warm_start.error_rate, "seed": config.trainer.seed},
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
        copying=tiny.copying,
    )
    build_tiny_model(directory, texts(demonstrations), spec, config.trainer.seed)
    say(f"model: tiny, {tiny.layers} layers of width {tiny.hidden_size}")


def _warm_start(
    config: RunConfig, base: str, demonstrations: list[Demonstration], directory: Path, say: Progress
) -> None:
    torch.manual_seed(config.trainer.seed)
    model, tokenizer = load_whole_model(base), load_tokenizer(base)

    renderer = make_renderer(config, tokenizer)

    def on_step(step: int, steps: int, metrics: dict[str, float]) -> None:
        if step == 1 or step == steps or step % max(1, steps // 5) == 0:
            say(f"warm start: step {step}/{steps}, loss {metrics['train/loss']:.3f}")

    fine_tune(
        model,
        fitting([conversation_example(each, renderer) for each in demonstrations], config.model.max_context, say),
        config.warm_start,
        micro_batch_tokens=config.actor.micro_batch_tokens,
        seed=config.trainer.seed,
        on_step=on_step,
    )
    save_model(model, tokenizer, directory)
