"""What a person sees of a run: the five steps of the loop, a line that moves while it trains, and what came of it.

On a terminal the training line is a progress bar; in a file or a pipe it is plain lines, at most about sixty.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from openmanus_rl.tracking.stats import Interval

_PLAIN_LINES = 60


class Stage(Enum):
    """The steps of the loop, as the guide numbers them; the last three repeat."""

    SERVICES = "start environment services"
    WORKERS = "reward manager and rollout workers"
    EPISODES = "play episodes"
    UPDATE = "update"
    CHECKPOINT = "checkpoint"

    @property
    def number(self) -> int:
        return list(Stage).index(self) + 1


@dataclass(frozen=True)
class StepReport:
    """What is shown of one training step; None is left out."""

    step: int
    success: float | None = None
    episode_return: float | None = None
    entropy: float | None = None
    kl: float | None = None
    tokens_per_second: float | None = None
    loss: float | None = None

    def __str__(self) -> str:
        shown = (
            ("loss {:.3f}", self.loss),
            ("success {:.0%}", self.success),
            ("return {:+.2f}", self.episode_return),
            ("entropy {:.2f}", self.entropy),
            ("KL {:.4f}", self.kl),
            ("{:,.0f} tokens/s", self.tokens_per_second),
        )
        return "  ".join(form.format(value) for form, value in shown if value is not None)


@dataclass(frozen=True)
class RunReport:
    """What came of a run."""

    env: str
    algorithm: str
    before: Interval
    after: Interval
    train_seconds: float
    total_seconds: float
    episodes_played: int
    picture: Path
    episodes: Path
    checkpoint: Path
    try_next: Sequence[str] = ()
    """Commands, each with what it shows: `./train_ppo.sh   the same with a critic`."""


class RunConsole:
    """Prints a run. Used as a context manager, it leaves the terminal as it was, whatever happens."""

    def __init__(self, total_steps: int, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.total_steps = total_steps
        self._every = max(1, total_steps // _PLAIN_LINES)
        self._first_step = 0
        self._started = 0.0
        self._progress: Progress | None = None

    def __enter__(self) -> "RunConsole":
        return self

    def __exit__(self, *_: object) -> None:
        self.end_training()

    def stage(self, stage: Stage, detail: str = "") -> None:
        """Say which step of the loop begins."""
        line = Text.assemble((f"{stage.number}. {stage.value}", "bold cyan"), f"  {detail}" if detail else "")
        self._print(line)

    def note(self, text: str) -> None:
        """A line beside the steps, such as a measurement or a warning."""
        self._print(Text(f"   {text}"))

    def validation(self, step: int, success: Interval) -> None:
        """Success on held-out tasks after `step` training steps."""
        when = "before training" if step == 0 else f"after step {step}"
        self._print(Text.assemble("   held-out success ", (str(success), "bold"), f"  {when}"))

    def begin_training(self, first_step: int = 0, total_steps: int | None = None) -> None:
        """Start the clock; `first_step` is how many steps were done before this call."""
        if total_steps is not None:  # known only now
            self.total_steps, self._every = total_steps, max(1, total_steps // _PLAIN_LINES)
        self._first_step = first_step
        self._started = time.monotonic()
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("   step {task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=16),
                _Times(self),
                TextColumn("{task.fields[report]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
                console=self.console,
                refresh_per_second=4,
                expand=True,
            )
            self._progress.add_task("training", total=self.total_steps, completed=first_step, report="")
            self._progress.start()

    def step(self, report: StepReport) -> None:
        """Show a finished step."""
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=report.step, report=str(report))
        elif report.step % self._every == 0 or report.step in (self._first_step + 1, self.total_steps):
            self._print(Text(f"   step {report.step}/{self.total_steps}  {report}  {self.times(report.step)}"))

    def end_training(self) -> None:
        """Stop the moving line. Ending twice is fine."""
        if self._progress:
            self._progress.stop()
            self._progress = None

    def times(self, step: int) -> str:
        """How long training has run, and how long it will."""
        elapsed = time.monotonic() - self._started
        done = step - self._first_step
        if done <= 0:
            return duration(elapsed)
        left = elapsed / done * (self.total_steps - step)
        return f"{duration(elapsed)}, {duration(left)} left"

    def summary(self, report: RunReport) -> None:
        """The end: before → after, how long it took, where everything is, what to try next."""
        self.end_training()
        self.console.print(Text(f"\n{report.env}, {report.algorithm}", style="bold"))
        for name, value in _summary_rows(report):
            self._print(Text.assemble((f"  {name:<12}", "dim"), value))
        if report.try_next:
            self.console.print(Text("\nTry next", style="bold"))
        for command in report.try_next:
            self._print(Text(f"  {command}"))

    def _print(self, line: Text) -> None:
        # A line is one line: words are never wrapped into a log file.
        self.console.print(line, soft_wrap=True)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s` or `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _summary_rows(report: RunReport) -> list[tuple[str, Text]]:
    is_better = report.after.is_above(report.before)
    success = Text.assemble(str(report.before), " → ", (str(report.after), "bold green" if is_better else "bold"))
    if not is_better and not report.before.is_above(report.after):
        success.append("  (the intervals overlap)")
    times = f"{duration(report.train_seconds)} of training, {duration(report.total_seconds)} in all"
    return [
        ("success", success),
        ("time", Text(f"{times}, {report.episodes_played:,} episodes")),
        ("picture", Text(str(report.picture))),
        ("episodes", Text(str(report.episodes))),
        ("checkpoint", Text(str(report.checkpoint))),
    ]


class _Times(ProgressColumn):
    """Elapsed and remaining time of the moving line."""

    def __init__(self, console: RunConsole) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> Text:
        return Text(self._console.times(int(task.completed)), style="dim")
