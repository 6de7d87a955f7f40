"""The canary: after new weights, the engine must give the trainer's log-probs on a fixed probe, or the run stops.

A weight update that raises nothing and changes nothing, or changes all but one matrix, shows in no other way. What the
probe does not show, the tokens of every step do: there too the two may not drift apart.
"""

from collections.abc import Callable, Mapping, Sequence

from openmanus_rl.config.schema import RolloutConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError

PROBE_TOKENS = 64


class CanaryDied(UserError):
    """The engine does not compute what the trainer computes."""


def probe(task: Task, encode: Callable[[str], list[int]], vocab_size: int) -> list[int]:
    """The tokens that both sides score: a task's own words, or, where it has hardly any, a walk over the vocabulary."""
    ids = encode(task.prompt)[:PROBE_TOKENS]
    return ids if len(ids) >= 8 else [index % vocab_size for index in range(PROBE_TOKENS)]


def tolerance(rollout: RolloutConfig) -> float:
    """The largest difference that rounding explains."""
    if rollout.canary_tolerance is not None:
        return rollout.canary_tolerance
    exact = rollout.engine == "embedded" or rollout.vllm.dtype == "float32"
    return 1e-3 if exact else 0.5


def largest_gap(engine: Sequence[float], trainer: Sequence[float], allowed: float, where: str) -> float:
    """The largest difference of the two, if it is allowed."""
    gap, position = max((abs(a - b), index) for index, (a, b) in enumerate(zip(engine, trainer, strict=True)))
    if not gap <= allowed:
        raise CanaryDied(
            f"{where} does not compute with the trainer's weights: the log-prob of probe token {position + 1} is "
            f"{engine[position]:.6f} there and {trainer[position]:.6f} in the trainer "
            f"(difference {gap:.2e}, allowed {allowed:.0e}).",
            "The last checkpoint is good. If the engine rounds more coarsely than that, set rollout.canary_tolerance.",
        )
    return gap


def check_drift(metrics: Mapping[str, float], allowed: float) -> None:
    """Stop where the engine's log-probs of a step's tokens were too far from the trainer's; metrics may have none."""
    gap = metrics.get("rollout/log_prob_gap_mean", 0.0)
    if not gap <= allowed:
        raise CanaryDied(
            f"the engine's log-probs are {gap:.3g} from the trainer's on average over the step's tokens "
            f"(trainer.max_logprob_gap={allowed:g}), at worst {metrics['rollout/log_prob_gap_max']:.3g}.",
            "The last checkpoint is good. Look for what engine and trainer compute differently (precision, "
            "temperature, adapters), weight it away (actor.proximal=recompute with algorithm.correction), "
            "or raise the limit.",
        )
