"""How much a unit of KL costs: a constant, or a price that moves until the KL is where it should be."""

import math
from typing import Protocol


class KLController(Protocol):
    """Owns the coefficient of the KL penalty."""

    coefficient: float

    def update(self, mean_kl: float, episodes: int) -> None:
        """Learn what the KL was in a step of so many episodes."""

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must keep."""

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a checkpoint."""


class FixedKL:
    """The coefficient of the config, always."""

    def __init__(self, coefficient: float) -> None:
        self.coefficient = coefficient

    def update(self, mean_kl: float, episodes: int) -> None:
        """Nothing to learn."""

    def state_dict(self) -> dict[str, float]:
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Nothing was kept: the config is right even if it changed since."""


class AdaptiveKL:
    """Raise the price while the KL is above its target, lower it while below (Ziegler et al. 2019).

    A step moves the coefficient by at most 20 % of episodes / horizon, however far off the KL is, and by at most 20 %,
    however many its episodes: the price does not fall to nothing.
    """

    def __init__(self, coefficient: float, target: float, horizon: int) -> None:
        self.coefficient = coefficient
        self.target = target
        self.horizon = horizon

    def update(self, mean_kl: float, episodes: int) -> None:
        if not math.isfinite(mean_kl):
            raise ValueError(f"the KL to the reference is {mean_kl}: log-probs are broken")
        error = min(max(mean_kl / self.target - 1, -0.2), 0.2)
        self.coefficient *= 1 + error * min(episodes / self.horizon, 1)

    def state_dict(self) -> dict[str, float]:
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.coefficient = state["coefficient"]
