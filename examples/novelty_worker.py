"""A role of your own: behaviour that is rare in the batch earns a bonus on top of what the world pays.

    ./train_grpo.sh trainer.workers.novelty=examples/novelty_worker.py:Novelty

Count-based exploration (Bellemare et al. 2016) in its simplest form: a row whose sampled tokens occurred n times in the
batch is paid 1 / sqrt(n), times a small weight, on its last sampled token.
"""

from collections import Counter

import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.dispatch import Dispatch, dispatch

WEIGHT = 0.05


class Novelty:
    """It needs no model, so it loads none; any number of ranks gives the same answer, since each sees all rows."""

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        self.seed = config.trainer.seed

    @dispatch(Dispatch.SAME)
    def enrich(self, data: DataProto) -> DataProto:
        """The batch's `token_level_scores` with the bonus: a column that is there already is replaced."""
        mask = data.batch["response_mask"].bool()
        behaviours = [tuple(row[sampled].tolist()) for row, sampled in zip(data.batch["responses"], mask, strict=True)]
        seen = Counter(behaviours)
        scores = data.batch["token_level_scores"].clone()
        for index, behaviour in enumerate(behaviours):
            if behaviour:
                last = int(torch.nonzero(mask[index])[-1])
                scores[index, last] += WEIGHT / seen[behaviour] ** 0.5
        return DataProto.from_dict({"token_level_scores": scores})
