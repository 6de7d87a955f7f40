"""One update of a group with its shared prompt computed once, against each row with its own copy of it.

    python bench/tree.py

Groups of 8 episodes, a prompt of 300 tokens and 60 of their own each, a Llama of five million weights, one thread. All
rows are equally long, so the other side, rows side by side, has no padding at all. Both sides run in turn; seconds are
of the process, which others on the machine do not lengthen.
"""

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from update_cases import VOCABULARY, actor, five_million_weights, update_batch

GROUPS, GROUP_SIZE, PROMPT, OWN = 2, 8, 300, 60
ALTERNATIONS = 5
LAYOUTS = ("sorted", "tree", "auto")


def group_rows() -> list[np.ndarray]:
    dice = np.random.default_rng(0)
    prompts = [dice.integers(0, VOCABULARY, PROMPT) for _ in range(GROUPS)]
    return [
        np.concatenate([prompt, dice.integers(0, VOCABULARY, OWN)]) for prompt in prompts for _ in range(GROUP_SIZE)
    ]


def main() -> None:
    torch.set_num_threads(1)
    rows = group_rows()
    batch = update_batch(rows, [PROMPT] * len(rows), [row // GROUP_SIZE for row in range(len(rows))])
    with TemporaryDirectory() as place:
        model_dir = five_million_weights(Path(place) / "model")
        workers = {layout: actor(model_dir, layout=layout) for layout in LAYOUTS}
    seconds: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    reuse = {}
    for _ in range(ALTERNATIONS + 1):
        for layout, worker in workers.items():
            began = time.process_time()
            metrics = worker.update_actor(batch, 0).meta_info["metrics"]
            seconds[layout].append(time.process_time() - began)
            reuse[layout] = metrics["perf/token_reuse"]
    for layout in LAYOUTS:
        pairs = zip(seconds["sorted"][1:], seconds[layout][1:], strict=True)  # the first of each warms up
        ratio = statistics.median(padded / ours for padded, ours in pairs)
        print(
            f"{layout:7} {statistics.median(seconds[layout][1:]):6.2f} s an update, "
            f"{reuse[layout]:.2f} tokens of rows per token computed, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
