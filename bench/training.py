"""Tokens per second of an update on rows of mixed lengths, against transformers' forward and backward alone.

    python bench/training.py

16 rows of 40 to 400 tokens that share nothing, a Llama of five million weights, one thread. The other side is the bare
model on each row by itself, without any padding, with its own loss; ours is the whole update: rows to micro-batches,
log-probs, entropies, the policy's loss, clipping and AdamW. Both sides run in turn; seconds are of the process, which
others on the machine do not lengthen.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from update_cases import VOCABULARY, actor, five_million_weights, update_batch

from openmanus_rl.models.load import load_causal_lm

ROWS, SHORTEST, LONGEST = 16, 40, 400
ALTERNATIONS = 4
LAYOUTS = ("auto", "sorted")


def mixed_rows() -> list[np.ndarray]:
    dice = np.random.default_rng(0)
    return [dice.integers(0, VOCABULARY, dice.integers(SHORTEST, LONGEST + 1)) for _ in range(ROWS)]


def main() -> None:
    torch.set_num_threads(1)
    rows = mixed_rows()
    batch = update_batch(rows, [1] * ROWS, list(range(ROWS)))
    tokens = sum(map(len, rows))
    with TemporaryDirectory() as place:
        model_dir = five_million_weights(Path(place) / "model")
        model = load_causal_lm(model_dir)
        workers = {layout: actor(model_dir, layout=layout) for layout in LAYOUTS}

    def bare() -> None:
        model.zero_grad(set_to_none=True)
        for row in rows:
            ids = torch.from_numpy(row)[None]
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    def speed(run: Callable[[], object]) -> float:
        began = time.process_time()
        run()
        return tokens / (time.process_time() - began)

    speeds: dict[str, list[float]] = {side: [] for side in ("bare model", *LAYOUTS)}
    for _ in range(ALTERNATIONS + 1):
        speeds["bare model"].append(speed(bare))
        for layout, worker in workers.items():
            speeds[layout].append(speed(lambda worker=worker: worker.update_actor(batch, 0)))
    for side, found in speeds.items():
        ratio = statistics.median(ours / other for ours, other in zip(found[1:], speeds["bare model"][1:], strict=True))
        print(f"{side:10} {statistics.median(found[1:]):7.0f} tokens/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
