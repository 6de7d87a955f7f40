"""Tasks as Hugging Face parquet: `data/<env_name>/{train,validation,test}.parquet` with the guide's columns.

A file records the options of the world it was made for, so that a file made with others is noticed, not played.
"""

import hashlib
import inspect
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import track

from openmanus_rl import __version__
from openmanus_rl.data.parquet import made_from, open_parquet, read_rows, write_rows
from openmanus_rl.envs.base import Split, Task
from openmanus_rl.envs.options import refused_options
from openmanus_rl.envs.registry import environment_class, make_environment
from openmanus_rl.errors import UserError

TASK_COLUMNS = ("data_source", "item_id", "prompt", "ability", "reward_model", "extra_info")

ABILITY = "agent"
"""What kind of skill the tasks of this project ask for, in the column that readers of such files expect."""


def tasks_path(data_dir: Path | str, env_name: str, split: Split) -> Path:
    """The default place of a split's file. A world given as `module:Class` gets a directory of that name."""
    return Path(data_dir) / directory_name(env_name) / f"{split}.parquet"


def directory_name(env_name: str) -> str:
    """The environment's name as one that every file system takes."""
    return re.sub(r"[^\w.-]+", "-", env_name).strip("-.")


def build_tasks(env_name: str, split: Split, n: int, options: Mapping[str, Any] | None = None) -> list[Task]:
    """The first `n` tasks of a split; a world with fewer gives all it has."""
    chosen = dict(options or {})
    effective_options(env_name, chosen)
    item_ids = itertools.islice(environment_class(env_name).item_ids(split, **chosen), n)
    world = make_environment(env_name, **chosen)
    try:
        tasks = []
        for index, item_id in enumerate(_with_a_bar(item_ids, n, f"{env_name}, {split} tasks")):
            bare = Task(env_name, item_id)
            world.reset(bare)  # instructions may speak of the task
            difficulty = world.difficulty()
            extra = {"index": index, "split": split, **({} if difficulty is None else {"difficulty": difficulty})}
            tasks.append(Task(env_name, item_id, prompt=world.instructions(), extra=extra))
    finally:
        world.close()
    if not tasks:
        raise UserError(f"{env_name} has no {split} tasks with the options {chosen}", "Other options may have some.")
    return tasks


def _with_a_bar(item_ids: Iterable[str], count: int, title: str) -> Iterable[str]:
    """The item ids; whoever sits at a terminal sees how far it is, for some worlds take a while to begin a task."""
    console = Console(stderr=True)
    return track(item_ids, title, count, console=console, transient=True, disable=not console.is_terminal)


def tasks_fingerprint(env_name: str, options: Mapping[str, Any] | None = None) -> str:
    """Equal exactly where two files hold tasks of the same world with the same options, defaults included."""
    described = json.dumps([env_name, effective_options(env_name, options or {})], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def effective_options(env_name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options and the defaults of all others; an option that the world does not take is an error."""
    world = environment_class(env_name)
    signature = inspect.signature(world)
    refused = refused_options(world, options)
    if refused:
        raise UserError(f"env.options: {refused}", f"Its options: {', '.join(signature.parameters) or 'none'}.")
    bound = signature.bind(**options)
    bound.apply_defaults()
    return dict(bound.arguments)


def write_tasks(
    path: Path, tasks: Sequence[Task], options: Mapping[str, Any] | None = None, asked: int | None = None
) -> None:
    """Write tasks of one world, played with `options`, to a parquet file; `asked` is how many were wanted."""
    if not tasks:
        raise UserError(f"no tasks to write to {path}")
    worlds = {task.env for task in tasks}
    if len(worlds) > 1:
        raise UserError(
            f"{path} cannot hold tasks of several worlds: {', '.join(sorted(worlds))}", "Use a file for each."
        )
    env_name = tasks[0].env
    described = {
        "env": env_name,
        "options": effective_options(env_name, options or {}),
        "fingerprint": tasks_fingerprint(env_name, options),
        "asked": len(tasks) if asked is None else asked,
        "version": __version__,
    }
    write_rows(path, [_row(task) for task in _alike(tasks)], _schema(tasks), described)


def read_tasks(path: Path, options: Mapping[str, Any] | None = None) -> list[Task]:
    """The tasks of a file. With `options`, a file that was built for other options is refused."""
    rows = read_rows(path, TASK_COLUMNS, f"Build it with: openmanus-rl data build {_world_of(path)}")
    if options is not None:
        _refuse_stale(path, rows[0]["data_source"], options)
    return [_task(row) for row in rows]


def is_built_for(path: Path, env_name: str, options: Mapping[str, Any], count: int) -> bool:
    """Whether a file can serve: a user's own always, one of ours if its options are these and no task is missing.

    None is missing that the world does not have: then fewer were written than asked for.
    """
    if not path.exists():
        return False
    with open_parquet(path, "") as file:
        described = made_from(file)
        rows = file.metadata.num_rows
    if not described:
        return True
    has_enough = rows >= count or rows < described.get("asked", 0)
    return has_enough and described["fingerprint"] == tasks_fingerprint(env_name, options)


def _refuse_stale(path: Path, env_name: str, options: Mapping[str, Any]) -> None:
    with open_parquet(path, "") as file:
        described = made_from(file)
    if not described or described["fingerprint"] == tasks_fingerprint(env_name, options):
        return
    wanted = effective_options(env_name, options)
    stored = described["options"]
    changed = [
        f"{name}={stored.get(name)!r} there, {wanted.get(name)!r} here"
        for name in sorted(stored.keys() | wanted.keys())
        if stored.get(name) != wanted.get(name)
    ]
    raise UserError(
        f"{path} was built with other options of {env_name}: {'; '.join(changed)}",
        f"Build it again with: openmanus-rl data build {env_name} (or delete the file).",
    )


def _world_of(path: Path) -> str:
    """The environment that a file in the default place belongs to."""
    return Path(path).parent.name or "ENV"


def _alike(tasks: Sequence[Task]) -> Sequence[Task]:
    """The tasks with ground truths of one type: where one has a list of them, all have."""
    if not _has_lists(tasks):
        return tasks
    return [replace(task, ground_truth=_truths_of(task.ground_truth)) for task in tasks]


def _has_lists(tasks: Iterable[Task]) -> bool:
    return any(isinstance(task.ground_truth, list) for task in tasks)


def _truths_of(truth: str | list[str] | None) -> list[str] | None:
    """One ground truth as a list of one."""
    return [truth] if isinstance(truth, str) else truth


def _row(task: Task) -> dict[str, Any]:
    return {
        "data_source": task.env,
        "item_id": task.item_id,
        "prompt": [{"role": "user", "content": task.prompt}] if task.prompt else [],
        "ability": ABILITY,
        "reward_model": {
            "style": "environment" if task.ground_truth is None else "rule",
            "ground_truth": task.ground_truth,
        },
        "extra_info": {**task.extra, "seed": task.seed},
    }


def _task(row: Mapping[str, Any]) -> Task:
    extra = {name: value for name, value in (row["extra_info"] or {}).items() if value is not None}
    return Task(
        env=row["data_source"],
        item_id=row["item_id"],
        seed=extra.pop("seed", 0),
        prompt="\n\n".join(message["content"] for message in row["prompt"] or []),
        ground_truth=(row["reward_model"] or {}).get("ground_truth"),
        extra=extra,
    )


def _schema(tasks: Iterable[Task]) -> pa.Schema:
    """The guide's columns; `extra_info` also has a field for whatever else the tasks carry."""
    fixed = {"index": pa.int64(), "split": pa.string(), "seed": pa.int64()}
    others = sorted({name for task in tasks for name in task.extra} - fixed.keys())
    extra = [pa.field(name, kind) for name, kind in fixed.items()]
    extra += [pa.field(name, pa.array([task.extra.get(name) for task in tasks]).type) for name in others]
    truth = pa.list_(pa.string()) if _has_lists(tasks) else pa.string()
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    return pa.schema(
        [
            ("data_source", pa.string()),
            ("item_id", pa.string()),
            ("prompt", pa.list_(message)),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", truth)])),
            ("extra_info", pa.struct(extra)),
        ]
    )
