"""What the benches of updates share: a small Llama on disk, and rows with the columns that an update reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker

VOCABULARY = 256


def five_million_weights(directory: Path) -> Path:
    """A Llama of six layers of width 256."""
    spec = TinyModelSpec(hidden_size=256, layers=6, heads=8, intermediate_size=704, max_positions=1024)
    build_tiny_model(directory, ["some text for a tokenizer"], spec, seed=0)
    return directory


def update_batch(rows: Sequence[np.ndarray], prompts: Sequence[int], groups: Sequence[int]) -> DataProto:
    """Rows of tokens of which all after the prompt count as sampled, with random advantages."""
    before, after = max(prompts), max(len(row) - prompt for row, prompt in zip(rows, prompts, strict=True))
    ids = torch.zeros(len(rows), before + after, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        place = slice(before - prompt, before - prompt + len(row))
        ids[number, place], attention[number, place] = torch.from_numpy(row), 1
    mask = attention[:, before:].bool()
    dice = torch.Generator().manual_seed(0)
    return DataProto.from_dict(
        {
            "prompts": ids[:, :before],
            "responses": ids[:, before:],
            "input_ids": ids,
            "attention_mask": attention,
            "response_mask": mask,
            "old_log_probs": -5.0 * mask,
            "rollout_log_probs": -5.0 * mask,
            "advantages": torch.randn(mask.shape, generator=dice) * mask,
            "episode_index": torch.arange(len(rows)),
            "group_index": torch.tensor(groups),
        }
    )


def actor(model_dir: Path, **options: Any) -> ActorWorker:
    """One optimiser step an update."""
    return ActorWorker(str(model_dir), RunConfig(actor={"mini_batches": 1, **options}))
