"""The guard: watches a run against its own history, and says when the policy collapses and by what.

A signal is out of its band when it is farther from the median of its healthy past than `guard.sensitivity` times its
usual spread (the median absolute deviation, which a few wild steps do not move). One that stays out for
`guard.patience` steps is a collapse; an update that moved the policy beyond all measure is one at once. What is decided
depends on metrics alone, so a resumed run decides the same.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from openmanus_rl.config.schema import GuardConfig

SUCCESS = "success/rate"
SHOWN_STEPS = 10
Direction = Literal["up", "down", "both"]


@dataclass(frozen=True)
class Signal:
    """A metric that tells of health."""

    metric: str
    bad: Direction
    floor: float
    """The least spread that is taken for usual, on the scale that is compared."""
    cause: str
    """What it means when it leaves its band, for a person."""
    remedy: str
    grave: bool = True
    """Whether it is a collapse alone, or only together with another signal."""
    scale: Callable[[float], float] = float
    weight: float = 1.0
    """How many times its distance counts: what is bounded cannot go far."""
    limit: float = math.inf
    """Beyond this it is a collapse at once, whatever its history."""


def _log(value: float) -> float:
    return math.log(max(value, 1e-4))


SIGNALS = (
    Signal(
        "rollout/log_prob_gap_mean",
        "up",
        0.005,
        "engine and trainer no longer agree on log-probs",
        "Look for what changed in the engine; algorithm.correction weights a gap away.",
    ),
    Signal(
        "actor/ppo_kl",
        "up",
        0.01,
        "the updates are too large: the policy moved far from the one that played",
        "Lower actor.lr, or take fewer actor.mini_batches and actor.epochs.",
        scale=abs,
        limit=0.5,
    ),
    Signal(
        "actor/grad_norm",
        "up",
        0.35,
        "the gradient has exploded",
        "Lower actor.lr or actor.grad_clip.",
        grave=False,
        scale=_log,
    ),
    Signal(
        "actor/entropy",
        "both",
        0.15,
        "the policy's entropy has left its course: it repeats itself, or has become noise",
        "Falling: raise actor.entropy_coefficient. Rising: lower actor.lr. Or keep near the reference (algorithm.kl).",
        scale=_log,
    ),
    Signal(
        "episode/invalid_actions",
        "up",
        0.03,
        "the policy has lost the form of actions",
        "Lower actor.lr, or keep near the reference (algorithm.kl.where=loss).",
    ),
    Signal(
        "critic/score/std",
        "down",
        0.35,
        "all episodes score the same: there is nothing left to learn from",
        "Choose easier tasks, or a larger rollout.group_size.",
        grave=False,
        scale=_log,
    ),
    Signal(
        SUCCESS,
        "down",
        0.05,
        "success on training tasks has fallen",
        "Read the episodes below; the other signals say what went before.",
        weight=2.0,
    ),
)
"""In the order of cause and effect: the first that is out of its band names the collapse."""


@dataclass(frozen=True)
class Reading:
    """A signal out of its band."""

    signal: Signal
    value: float
    usual: float | None
    """The median of its healthy past; None where the limit alone speaks."""

    def __str__(self) -> str:
        before = "" if self.usual is None else f", before {self.usual:.4g}"
        return f"{self.signal.metric} {self.value:.4g}{before}"


@dataclass(frozen=True)
class Collapse:
    """What the guard saw; the first reading names the cause."""

    step: int
    readings: tuple[Reading, ...]
    past: tuple[Mapping[str, float], ...]
    """The metrics it watches, of the last steps, the collapse's own last."""

    @property
    def cause(self) -> str:
        return self.readings[0].signal.cause

    @property
    def remedy(self) -> str:
        return self.readings[0].signal.remedy

    def __str__(self) -> str:
        return f"{self.cause} ({'; '.join(map(str, self.readings))})"


class Guard:
    """What is healthy in this run, and how long it has not been. Its state is part of a checkpoint."""

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.rollbacks = 0
        self._healthy: list[dict[str, float]] = []
        """The watched metrics of healthy steps, the last `guard.history` of them."""
        self._suspect: list[dict[str, float]] = []
        """The same of the steps since something left its band."""
        self._out: dict[str, int] = {}
        """For how many steps each signal has been out."""
        self._said = False
        """Whether the present collapse was told."""

    @property
    def is_suspicious(self) -> bool:
        """Whether something is out of its band, though it is no collapse yet: not a state to come back to."""
        return bool(self._out)

    def observe(self, step: int, metrics: Mapping[str, float]) -> Collapse | None:
        """Look at a step's metrics. A collapse is told once, until the run has recovered."""
        if self.config.action == "off":
            return None
        seen = {signal.metric: float(metrics[signal.metric]) for signal in SIGNALS if signal.metric in metrics}
        readings = tuple(reading for signal in SIGNALS if (reading := self._reading(signal, seen)) is not None)
        self._out = {r.signal.metric: self._out.get(r.signal.metric, 0) + 1 for r in readings}
        if not readings:
            self._said = False
            self._healthy = [*self._healthy, *self._suspect, seen][-self.config.history :]
            self._suspect = []
            return None
        self._suspect.append(seen)
        if self._said or not self._is_collapse(readings):
            return None
        self._said = True
        return Collapse(step, readings, tuple([*self._healthy, *self._suspect][-SHOWN_STEPS:]))

    def state_dict(self) -> dict[str, Any]:
        return {
            "rollbacks": self.rollbacks,
            "healthy": self._healthy,
            "suspect": self._suspect,
            "out": self._out,
            "said": self._said,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rollbacks = state["rollbacks"]
        self._healthy, self._suspect = list(state["healthy"]), list(state["suspect"])
        self._out, self._said = dict(state["out"]), state["said"]

    def _reading(self, signal: Signal, seen: Mapping[str, float]) -> Reading | None:
        if signal.metric not in seen:
            return None
        value = seen[signal.metric]
        past = [step[signal.metric] for step in self._healthy if signal.metric in step]
        usual = median(past) if past else None
        if not math.isfinite(value) or signal.scale(value) > signal.limit:
            return Reading(signal, value, usual)
        if len(past) < self.config.least_history:
            return None
        scaled = [signal.scale(entry) for entry in past]
        centre = median(scaled)
        spread = max(1.4826 * median(abs(entry - centre) for entry in scaled), signal.floor)
        distance = signal.weight * (signal.scale(value) - centre) / spread
        worse = {"up": distance, "down": -distance, "both": abs(distance)}[signal.bad]
        if worse <= self.config.sensitivity:
            return None
        if signal.bad == "down" and signal.metric != SUCCESS and self._succeeds(seen):
            return None  # all score the same because all succeed
        return Reading(signal, value, usual)

    def _succeeds(self, seen: Mapping[str, float]) -> bool:
        past = [step[SUCCESS] for step in self._healthy if SUCCESS in step]
        return SUCCESS in seen and bool(past) and seen[SUCCESS] >= median(past)

    def _is_collapse(self, readings: tuple[Reading, ...]) -> bool:
        lasting = [r for r in readings if self._out[r.signal.metric] >= self.config.patience]
        beyond_measure = any(not math.isfinite(r.value) or r.signal.scale(r.value) > r.signal.limit for r in readings)
        return beyond_measure or any(r.signal.grave for r in lasting) or len(lasting) > 1
