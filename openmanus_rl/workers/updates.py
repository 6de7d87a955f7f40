"""What actor and critic updates share: mini-batches in a seeded order, micro-batches, global denominators."""

from collections import defaultdict
from collections.abc import Iterator

import torch

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.protocol import DataProto


def mini_batches(data: DataProto, config: OptimConfig, seed: int) -> Iterator[DataProto]:
    """`epochs` passes over the episodes in a shuffled order, each in `mini_batches` parts of like size.

    The segments of an episode stay together, so that a mean per episode is one over whole episodes.
    """
    episode_index = data.batch["episode_index"]
    episodes = torch.unique(episode_index)
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(seed * 1_000 + epoch)
        order = episodes[torch.randperm(len(episodes), generator=generator)]
        for part in order.tensor_split(min(config.mini_batches, len(order))):
            yield data[torch.isin(episode_index, part)]


class MetricSums:
    """Sums over micro-batches, and the means they become."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, float] = defaultdict(float)

    def add(self, name: str, value: torch.Tensor | float, count: float) -> None:
        """`value` is a sum over `count` things."""
        self._sums[name] += float(value)
        self._counts[name] += count

    def means(self) -> dict[str, float]:
        return {name: total / max(self._counts[name], 1e-12) for name, total in self._sums.items()}
