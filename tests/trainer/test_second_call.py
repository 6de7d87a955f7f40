"""A second call finds everything in place and is soon at its first training step."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).with_name("openmanus-rl")
SECONDS = 15


def test_a_second_call_is_soon_at_its_first_training_step(place, grpo_run):
    """From the start of the process, imports included, on a machine that does nothing else."""
    began = time.monotonic()
    command = [COMMAND, *place.command("trainer.steps=500")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        shown = next(line for line in process.stdout if line.startswith("3. play episodes"))
        took = time.monotonic() - began
        assert shown
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert took < SECONDS
