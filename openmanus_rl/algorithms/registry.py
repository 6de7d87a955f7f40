"""Names to algorithms. The trainer knows none of them: it asks here what one needs, and calls it.

An estimator or a loss is one function in one file under a decorator; what the decorator returns is called like the
function, and is also what a user's own `module:name` must be.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.losses import Aggregation, LossInputs, TokenLoss
from openmanus_rl.algorithms.own import require_floats
from openmanus_rl.config.base import Config
from openmanus_rl.errors import UserError, blamed_on, did_you_mean, is_own
from openmanus_rl.registry import Registry

REQUIREMENTS = frozenset({"critic", "group", "greedy", "state_key"})
"""What an estimator can ask of the trainer: a critic's values, siblings of the same task, a greedy episode of the task,
the world's state at each turn."""

Credit = Literal["episode", "token"]

Options = TypeVar("Options", bound=Config)


@dataclass(frozen=True)
class EstimatorEntry:
    """An advantage estimator, what it needs, and its options."""

    name: str
    function: Callable[[CreditBatch, Any], Advantages]
    requires: frozenset[str]
    options: type[Config]
    credit: Credit = "token"
    """What it tells apart: with `episode`, only an episode's return counts, wherever the rewards fell."""
    aggregation: Aggregation | None = None
    """The aggregation of the loss without which the estimator is not what its paper says; None: any."""

    def __call__(self, batch: CreditBatch, options: Config) -> Advantages:
        with torch.no_grad(), blamed_on(f"the estimator {self.name}", self.function):
            return self.function(batch, options)


@dataclass(frozen=True)
class LossEntry:
    """A policy loss and its options."""

    name: str
    function: Callable[[LossInputs, Any], TokenLoss]
    options: type[Config]
    aggregation: Aggregation | None = None
    """The aggregation without which the loss is not what its paper says; None: any."""

    def __call__(self, inputs: LossInputs, options: Config) -> TokenLoss:
        who = f"the loss {self.name}"
        with blamed_on(who, self.function):
            answer = self.function(inputs, options)
        if not isinstance(answer, TokenLoss):
            raise UserError(f"{who} gave a {type(answer).__name__}.", "It must return TokenLoss(…).")
        require_floats(answer.loss_RT, f"{who} gave a loss", inputs.response_mask_RT)
        if is_own(self.function) and _is_broken(answer.loss_RT, inputs) and not _is_broken(inputs.log_probs_RT, inputs):
            raise UserError(f"{who} gave a loss that is not finite on sampled tokens, from log-probs that are.")
        return answer


def _is_broken(column_RT: Tensor, inputs: LossInputs) -> bool:
    return not bool(column_RT.detach()[inputs.response_mask_RT].isfinite().all())


ESTIMATORS: Registry[EstimatorEntry] = Registry("advantage estimator")
LOSSES: Registry[LossEntry] = Registry("policy loss")


def estimator(
    name: str,
    *,
    requires: Set[str] = frozenset(),
    options: type[Options],
    credit: Credit = "token",
    aggregation: Aggregation | None = None,
) -> Callable[[Callable[[CreditBatch, Options], Advantages]], EstimatorEntry]:
    """Decorator: make a function the advantage estimator `name`; for the rest see `EstimatorEntry`."""
    if not requires <= REQUIREMENTS:
        raise ValueError(f"{name} requires {sorted(requires - REQUIREMENTS)}; there are {sorted(REQUIREMENTS)}")

    def add(function: Callable[[CreditBatch, Options], Advantages]) -> EstimatorEntry:
        entry = EstimatorEntry(name, function, frozenset(requires), options, credit, aggregation)
        return ESTIMATORS.register(name)(entry)

    return add


def policy_loss(
    name: str, *, options: type[Options], aggregation: Aggregation | None = None
) -> Callable[[Callable[[LossInputs, Options], TokenLoss]], LossEntry]:
    """Decorator: make a function the policy loss `name`; for the rest see `LossEntry`."""

    def add(function: Callable[[LossInputs, Options], TokenLoss]) -> LossEntry:
        return LOSSES.register(name)(LossEntry(name, function, options, aggregation))

    return add


@cache
def find_estimator(name: str) -> EstimatorEntry:
    """The estimator called `name`, or a user's own as `module:function`. A user's file is run once."""
    entry = ESTIMATORS.lookup(name)
    if not isinstance(entry, EstimatorEntry):
        raise UserError(f"{name} is not an advantage estimator.", "Put @estimator(name, options=…) above the function.")
    return entry


@cache
def find_loss(name: str) -> LossEntry:
    """The policy loss called `name`, or a user's own as `module:function`. A user's file is run once."""
    entry = LOSSES.lookup(name)
    if not isinstance(entry, LossEntry):
        raise UserError(f"{name} is not a policy loss.", "Put @policy_loss(name, options=…) above the function.")
    return entry


def estimator_options(name: str, given: Mapping[str, Any]) -> Config:
    """The estimator's typed options from what stands under `algorithm.options`."""
    others = {other: entry.options for other, entry in ESTIMATORS.items()}
    return _typed("algorithm.options", f"algorithm.estimator={name}", find_estimator(name).options, given, others)


def loss_options(name: str, given: Mapping[str, Any]) -> Config:
    """The loss's typed options from what stands under `algorithm.loss_options`."""
    others = {other: entry.options for other, entry in LOSSES.items()}
    return _typed("algorithm.loss_options", f"algorithm.loss={name}", find_loss(name).options, given, others)


def _typed(
    section: str, chosen: str, options: type[Config], given: Mapping[str, Any], others: Mapping[str, type[Config]]
) -> Config:
    known = options.model_fields
    for key in given:
        if key not in known:
            owners = [name for name, other in others.items() if key in other.model_fields]
            hint = f"It is an option of {', '.join(owners)}." if owners else ""
            suggestion = did_you_mean(key, known) if known else "It has none."
            raise UserError(f"{section}.{key} is not an option of {chosen}. {suggestion}", hint)
    try:
        return options.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([section, *(str(part) for part in first["loc"])])
        raise UserError(f"{key}={first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}.") from error
