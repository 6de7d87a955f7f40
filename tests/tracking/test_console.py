import io
from pathlib import Path

import pytest
from rich.console import Console

from openmanus_rl.tracking.console import RunConsole, RunReport, Stage, StepReport, duration
from openmanus_rl.tracking.stats import wilson


def plain_console():
    return Console(file=io.StringIO(), width=60)


def printed(console):
    return console.file.getvalue().splitlines()


def report(before, after):
    return RunReport(
        env="maze",
        algorithm="grpo",
        before=before,
        after=after,
        train_seconds=141.2,
        total_seconds=203,
        episodes_played=11520,
        picture=Path("runs/maze-grpo/learning_curve.png"),
        episodes=Path("runs/maze-grpo/episodes"),
        checkpoint=Path("runs/maze-grpo/checkpoints/step_000060"),
        try_next=["./train_ppo.sh   the same with a critic"],
    )


def test_the_stages_are_numbered_as_in_the_guide():
    console = plain_console()
    for stage in Stage:
        RunConsole(1, console).stage(stage)
    assert printed(console) == [
        "1. start environment services",
        "2. reward manager and rollout workers",
        "3. play episodes",
        "4. update",
        "5. checkpoint",
    ]


def test_a_step_in_a_file_is_one_plain_line_however_narrow():
    console = plain_console()
    with RunConsole(2, console) as run:
        run.begin_training()
        run.step(StepReport(1, success=0.5, episode_return=-0.25, entropy=0.9, kl=0.0012, tokens_per_second=2312))
    (line,) = printed(console)
    assert line.startswith(
        "   step 1/2  success 50%  return -0.25  entropy 0.90  KL 0.0012  2,312 tokens/s  0 s, 0 s left"
    )


def test_a_long_run_does_not_flood_a_log():
    console = plain_console()
    run = RunConsole(6000, console)
    run.begin_training()
    for step in range(1, 6001):
        run.step(StepReport(step))
    lines = printed(console)
    assert len(lines) == 61
    assert lines[0].startswith("   step 1/6000")
    assert lines[-1].startswith("   step 6000/6000")


def test_a_terminal_shows_a_moving_line_and_gets_its_cursor_back():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)

    def interrupted_training():
        with RunConsole(2, console) as run:
            run.begin_training()
            run.step(StepReport(1, success=0.5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_training()
    output = console.file.getvalue()
    assert "step 1/2" in output
    assert "success 50%" in output
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert output.rindex(show) > output.rindex(hide)


def test_a_resumed_run_estimates_from_its_own_steps_only(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    run = RunConsole(60, plain_console())
    run.begin_training(first_step=50)
    now[0] += 10
    assert run.times(55) == "10 s, 10 s left"


def test_the_summary_says_before_after_time_and_where_things_are():
    console = plain_console()
    RunConsole(1, console).summary(report(wilson(98, 256), wilson(243, 256)))
    text = "\n".join(printed(console))
    assert "38.3 % [32.5, 44.4] n=256 → 94.9 % [91.5, 97.0] n=256" in text
    assert "2 min 21 s of training, 3 min 23 s in all, 11,520 episodes" in text
    for place in ("learning_curve.png", "runs/maze-grpo/episodes", "checkpoints/step_000060", "./train_ppo.sh"):
        assert place in text
    assert "the intervals overlap" not in text


def test_a_difference_within_noise_is_called_that():
    console = plain_console()
    RunConsole(1, console).summary(report(wilson(120, 256), wilson(130, 256)))
    assert "the intervals overlap" in console.file.getvalue()


def test_a_validation_line_carries_its_interval():
    console = plain_console()
    RunConsole(1, console).validation(0, wilson(98, 256))
    assert printed(console) == ["   held-out success 38.3 % [32.5, 44.4] n=256  before training"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(42.4, "42 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7650, "2 h 07 min")]
)
def test_durations_read_as_people_say_them(seconds, shown):
    assert duration(seconds) == shown
