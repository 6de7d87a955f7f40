"""The metrics of `metrics.jsonl`, under the same names, for TensorBoard and for Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.tracking.run_directory import RunPaths


class StepLog(Protocol):
    """Takes one step's metrics after another."""

    def append(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLog:
    """Files for TensorBoard. `first_step` hides what a killed run wrote from that step on."""

    def __init__(self, directory: Path, first_step: int) -> None:
        # Imported here: it takes a second, and a run may go without.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=first_step)

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLog:
    """A run of the W&B project `project`; its files are in the run directory, and its mode is wandb's own business.

    A resumed run is a new W&B run of the same group: W&B never takes back a step that was logged.
    """

    def __init__(self, run: Path, project: str, config: RunConfig) -> None:
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise UserError(
                f"tracking.wandb={project}: the wandb package is not installed.",
                "Install it (pip install wandb), or leave tracking.wandb out.",
            ) from error
        self._run = wandb.init(
            project=project,
            group=run.name,
            name=run.name,
            dir=str(run),
            config=config.model_dump(),
            settings=wandb.Settings(console="off"),  # the terminal is the run's own
        )

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def open_logs(run: RunPaths, config: RunConfig, step: int) -> list[StepLog]:
    """Every log that the config asks for, of a run that stands at `step`: later steps are written again."""
    metrics = MetricsLog(run.metrics)
    metrics.truncate_after(step)
    logs: list[StepLog] = [metrics]
    if config.tracking.tensorboard:
        logs.append(TensorBoardLog(run.tensorboard, first_step=step + 1))
    if config.tracking.wandb:
        logs.append(WandbLog(run.path, config.tracking.wandb, config))
    return logs
