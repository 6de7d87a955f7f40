"""Runs that are killed with -9 at a chosen moment: in their process, functions are replaced by ones that kill it."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as parts
from safetensors.torch import load_file
from tiny_runs import json_lines

STEPS = 20


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True, nth: int = 1, last_words=None):
    """The `nth` call of `owner.name` for which `when` holds is the end; `last_words` is what it still does of it."""
    original = getattr(owner, name)
    calls = 0

    def replacement(*arguments, **named):
        nonlocal calls
        if when(*arguments, **named):
            calls += 1
            if calls == nth:
                if last_words is not None:
                    last_words(original, *arguments, **named)
                die()
        return original(*arguments, **named)

    setattr(owner, name, replacement)


def arm(point: str) -> None:
    """Called in the process of a run, before it begins."""
    POINTS[point]()


def _while_made() -> None:
    from openmanus_rl.tracking.run_directory import RunDirectory

    kill_at(RunDirectory, "write_config")


def _while_the_model_is_copied() -> None:
    from openmanus_rl import files

    kill_at(files.os, "replace", lambda _, target: Path(target).name == "initial_model")


def _in_the_first_validation() -> None:
    from openmanus_rl.tracking.episodes import EpisodeLog

    kill_at(EpisodeLog, "write", lambda log, kind, *_: kind == "validation")


def _in_the_first_save() -> None:
    from openmanus_rl.tracking import checkpoints

    kill_at(checkpoints, "_seal")


def _in_an_episode() -> None:
    from openmanus_rl.agent import play

    kill_at(play, "_append_observation", nth=60)


def _while_credit_is_given() -> None:
    from openmanus_rl.trainer import credit

    kill_at(credit, "compute_advantage", nth=7)


def _before_the_actor_and_after_the_critic() -> None:
    from openmanus_rl.workers.actor import ActorWorker

    kill_at(ActorWorker, "_accumulate_gradient", nth=11)


def _in_an_update() -> None:
    from openmanus_rl.workers.optim import Optimiser

    kill_at(Optimiser, "step", nth=14)


def _in_a_weight_sync() -> None:
    from openmanus_rl.trainer import crew

    kill_at(crew, "largest_gap", nth=10)


def _in_a_later_validation() -> None:
    from openmanus_rl.tracking.episodes import EpisodeLog

    kill_at(EpisodeLog, "write", lambda log, kind, step, *_: (kind, step) == ("validation", 10))


def _while_episodes_are_written() -> None:
    from openmanus_rl import files

    kill_at(files.os, "replace", lambda _, target: Path(target).name == "train_step_000011.jsonl")


def _before_a_metrics_line() -> None:
    from openmanus_rl.tracking.metrics import MetricsLog

    kill_at(MetricsLog, "append", nth=9)


def _in_a_metrics_line() -> None:
    from openmanus_rl.tracking.metrics import MetricsLog

    def half_a_line(append, log, step, metrics):
        append(log, step, metrics)
        os.truncate(log.path, log.path.stat().st_size - 100)

    kill_at(MetricsLog, "append", nth=12, last_words=half_a_line)


def _between_metrics_and_save() -> None:
    from openmanus_rl.tracking.checkpoints import CheckpointStore

    kill_at(CheckpointStore, "save", nth=3)


def _in_an_event_line() -> None:
    from openmanus_rl.tracking.events import EventLog

    def half_a_line(append, log, kind, **details):
        append(log, kind, **details)
        os.truncate(log.path, log.path.stat().st_size - 9)

    kill_at(EventLog, "append", lambda log, kind, **_: kind == "checkpoint", nth=4, last_words=half_a_line)


def _in_the_model_file() -> None:
    from openmanus_rl import files

    def half_a_file(flush, path):
        os.truncate(path, path.stat().st_size // 2)

    kill_at(files, "flush", lambda path: Path(path).name.endswith("model.safetensors"), nth=9, last_words=half_a_file)


def _between_model_and_optimiser() -> None:
    kill_at(parts.FileSystemWriter, "finish", nth=3)


def _before_the_manifest() -> None:
    from openmanus_rl.tracking import checkpoints

    kill_at(checkpoints, "write_json", nth=4)


def _before_the_rename() -> None:
    kill_at(Path, "rename", lambda path, _: path.name.startswith(".saving_"), nth=4)


def _after_the_rename() -> None:
    from openmanus_rl.tracking import checkpoints

    kill_at(checkpoints, "flush", lambda path: path.name == "checkpoints", nth=4)


def _in_retention() -> None:
    def half_of_it(remove, path, *_, **__):
        next(file for file in path.rglob("*") if file.is_file()).unlink()

    kill_at(shutil, "rmtree", lambda path, *_, **__: Path(path).name.startswith(".removing_"), 2, half_of_it)


def _before_the_summary() -> None:
    from openmanus_rl.tracking.run_directory import RunDirectory

    kill_at(RunDirectory, "write_summary")


def _while_it_resumes() -> None:
    from openmanus_rl.tracking.metrics import MetricsLog

    kill_at(MetricsLog, "truncate_after", lambda log, step: step > 0)


def _in_going_back() -> None:
    from openmanus_rl.workers.optim import Optimiser

    kill_at(Optimiser, "scale_lr")


POINTS: dict[str, Callable[[], None]] = {
    "while the directory is made": _while_made,
    "while the model is copied": _while_the_model_is_copied,
    "in the first validation": _in_the_first_validation,
    "in the first save": _in_the_first_save,
    "in an episode": _in_an_episode,
    "while credit is given": _while_credit_is_given,
    "before the actor and after the critic": _before_the_actor_and_after_the_critic,
    "in an update": _in_an_update,
    "in a weight sync": _in_a_weight_sync,
    "in a later validation": _in_a_later_validation,
    "while episodes are written": _while_episodes_are_written,
    "before a metrics line": _before_a_metrics_line,
    "in a metrics line": _in_a_metrics_line,
    "between metrics and save": _between_metrics_and_save,
    "in an event line": _in_an_event_line,
    "in the model file": _in_the_model_file,
    "between model and optimiser": _between_model_and_optimiser,
    "before the manifest": _before_the_manifest,
    "before the rename": _before_the_rename,
    "after the rename": _after_the_rename,
    "in retention": _in_retention,
    "before the summary": _before_the_summary,
    "while it resumes": _while_it_resumes,
    "in going back": _in_going_back,
}


def armed(point: str) -> Callable[[], None]:
    return partial(arm, point)


def assert_same_end(resumed: Path, whole: Path) -> None:
    """All that a run leaves is the same to the bit, but for what tells of time and of calls."""
    assert metrics(resumed) == metrics(whole)
    assert [line["step"] for line in metrics(resumed)] == list(range(STEPS + 1))
    assert episodes(resumed) == episodes(whole)
    assert events(resumed) == events(whole)
    assert summary(resumed) == summary(whole)
    names = [path.name for path in sorted((whole / "checkpoints").iterdir())]
    assert [path.name for path in sorted((resumed / "checkpoints").iterdir())] == names
    for name in names:
        assert_same_tensors(resumed / "checkpoints" / name, whole / "checkpoints" / name)
    assert [path.name for path in resumed.rglob(".*") if path.name not in (".lock", ".metadata")] == []


def metrics(run: Path) -> list[dict[str, Any]]:
    aside = ("time", "timing_s", "perf")
    return [
        {name: value for name, value in line.items() if name.partition("/")[0] not in aside and "second" not in name}
        for line in json_lines(run / "metrics.jsonl")
    ]


def episodes(run: Path) -> dict[str, list[Any]]:
    files = sorted((run / "episodes").glob("*_step_*.jsonl"))
    return {path.name: [_timeless(line) for line in json_lines(path)] for path in files}


def _timeless(episode: dict[str, Any]) -> dict[str, Any]:
    for turn in episode["turns"]:
        for name in [name for name in turn if name.endswith("seconds")]:
            del turn[name]
    return episode


def events(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in json_lines(run / "events.jsonl") if line["event"] not in ("started", "resumed")]
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


def summary(run: Path) -> dict[str, Any]:
    return {k: v for k, v in json.loads((run / "summary.json").read_text()).items() if not k.endswith("seconds")}


def assert_same_tensors(one: Path, other: Path) -> None:
    found, expected = checkpoint_tensors(one), checkpoint_tensors(other)
    assert found.keys() == expected.keys()
    assert len(found) > 20
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert different == []
    assert trainer_state(one) == trainer_state(other)


def checkpoint_tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Weights, optimisers and random states."""
    tensors = {"random": torch.load(checkpoint / "trainer_state.pt")["torch_rng"]}
    for file in checkpoint.rglob("*.safetensors"):
        for name, tensor in load_file(file).items():
            tensors[f"{file.relative_to(checkpoint)}/{name}"] = tensor
    for directory in checkpoint.glob("*_optimiser"):
        stored = parts.FileSystemReader(directory).read_metadata().state_dict_metadata
        blank = {name: torch.zeros(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items()}
        parts.load(blank, checkpoint_id=directory, no_dist=True)
        tensors |= {f"{directory.name}/{name}": tensor for name, tensor in blank.items()}
    return tensors


def trainer_state(checkpoint: Path) -> dict[str, Any]:
    state = torch.load(checkpoint / "trainer_state.pt")
    del state["torch_rng"]
    for name in ("train_seconds", "total_seconds", "events"):  # lines of calls count among the events
        del state["progress"][name]
    return state
