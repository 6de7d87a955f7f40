"""What `openmanus-rl plan` says, against the run that follows."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from openmanus_rl.tracking.metrics import read_metrics

EXAMPLES = Path(__file__).parents[2] / "examples"

PLAN = """
import json, sys
from pathlib import Path
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.plan import make_plan

plan = make_plan(load_checked_config(Path(sys.argv[1]), sys.argv[2:]), lambda text: None)
trainer = plan.processes[0]
program = trainer.parts["program"]
print(json.dumps({"bytes": trainer.total - program, "program": program, "seconds": plan.step_seconds}))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("preset", ["maze_grpo", "wordle_ppo"])
def test_memory_and_time_are_within_a_quarter_of_what_the_run_measures(preset, tmp_path):
    words = [f"{key}={tmp_path / key}" for key in ("data.dir", "trainer.cache_dir", "trainer.runs_dir")]
    words += ["trainer.steps=8", "trainer.validate_every=8", "trainer.name=run"]
    config = str(EXAMPLES / f"{preset}.yaml")
    plan = json.loads(subprocess.check_output([sys.executable, "-c", PLAN, config, *words], text=True).splitlines()[-1])
    command = [str(Path(sys.executable).with_name("openmanus-rl")), "train", "--config", config, *words]
    subprocess.run(command, check=True, capture_output=True)
    lines = read_metrics(tmp_path / "trainer.runs_dir" / "run" / "metrics.jsonl")[1:]
    measured = lines[-1]["perf/max_rss_gb"] * 2**30 - plan["program"]
    assert plan["bytes"] == pytest.approx(measured, rel=0.25)
    assert plan["seconds"] == pytest.approx(statistics.median(line["timing_s/step"] for line in lines[1:]), rel=0.25)
