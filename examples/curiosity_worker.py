"""A worker of one's own: an actor that also likes answers it has seldom given.

The tokens of a turn get a bonus on their advantage that falls with the number of times the same answer was given.

    ./train_grpo.sh trainer.workers.actor=examples/curiosity_worker.py:CuriousActor
"""

from collections import Counter
from pathlib import Path

import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.parallel import rank

WEIGHT = 0.1
"""The bonus of an answer that was never given before, in units of advantage."""
SEEN_FILE = "actor_seen.pt"


class CuriousActor(ActorWorker):
    """Counts its answers; the counts are part of its checkpoints."""

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        super().__init__(model_dir, config)
        self.seen: Counter[tuple[int, ...]] = Counter()

    @dispatch(Dispatch.SAME)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        """As the actor's, with the bonus; every rank gets all rows, so all count the same."""
        bonus = self._bonus(data)
        data = data.select()  # the caller's batch keeps its advantages
        data.batch["advantages"] = data.batch["advantages"] + bonus
        answer = super().update_actor(data, seed)
        sampled = data.batch["response_mask"]
        answer.meta_info["metrics"]["actor/curiosity"] = float(bonus[sampled].mean())
        return answer

    @dispatch(Dispatch.SAME)
    def save(self, checkpoint: Path) -> None:
        """As the actor's, with the counts beside it."""
        super().save(checkpoint)
        if rank() == 0:
            torch.save(dict(self.seen), checkpoint / SEEN_FILE)

    @dispatch(Dispatch.SAME)
    def load(self, checkpoint: Path) -> None:
        """As the actor's, with the counts."""
        super().load(checkpoint)
        self.seen = Counter(torch.load(checkpoint / SEEN_FILE))

    def _bonus(self, data: DataProto) -> torch.Tensor:
        """For each sampled token WEIGHT / sqrt(how often its turn's answer was sampled, this time included)."""
        bonus = torch.zeros_like(data.batch["advantages"])
        turn_index = data.batch["turn_index"]
        for row, tokens in enumerate(data.batch["responses"]):
            for turn in turn_index[row][data.batch["response_mask"][row]].unique():
                of_turn = turn_index[row] == turn
                answer = tuple(tokens[of_turn].tolist())
                self.seen[answer] += 1
                bonus[row, of_turn] = WEIGHT / self.seen[answer] ** 0.5
        return bonus
