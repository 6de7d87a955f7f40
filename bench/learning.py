"""Does it learn, seed after seed? Trains the presets with several seeds and prints held-out success before and after.

    .venv/bin/python bench/learning.py --seeds 5 --jobs 2

With `--jobs 2` two runs share two cores.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openmanus_rl.tracking.stats import Interval


def main() -> None:
    arguments = _parser().parse_args()
    runs = [(algorithm, seed) for seed in range(arguments.seeds) for algorithm in arguments.algorithms]
    print(f"| {arguments.env_name} | seed | before | after | training |\n|---|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda run: _train(*run, arguments), runs))


def _train(algorithm: str, seed: int, arguments: argparse.Namespace) -> None:
    name = f"{arguments.env_name}-{algorithm}-seed{seed}"
    log = arguments.runs_dir / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).with_name("openmanus-rl")), "train", "--algorithm", algorithm]
    command += ["--env_name", arguments.env_name, f"trainer.seed={seed}", f"trainer.name={name}"]
    command += [f"trainer.runs_dir={arguments.runs_dir}", "trainer.resume=never"]
    command += arguments.overrides
    with log.open("w") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    summaries = sorted(arguments.runs_dir.glob(f"{name}*/summary.json"), key=lambda path: path.stat().st_mtime)
    if code or not summaries:
        print(f"| {algorithm} | {seed} | failed, see {log} | | |", flush=True)
        return
    summary = json.loads(summaries[-1].read_text())
    before, after = (Interval(**summary[key]) for key in ("success_before", "success_after"))
    print(f"| {algorithm} | {seed} | {before} | {after} | {summary['train_seconds']:.0f} s |", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, choices=(1, 2), help="runs at a time")
    parser.add_argument("--env_name", default="maze")
    parser.add_argument("--algorithms", nargs="+", default=["grpo", "ppo"])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/learning"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    return parser


if __name__ == "__main__":
    main()
