"""A config that a run may start with: typed, every algorithm option known, every given key with an effect."""

from collections.abc import Sequence
from pathlib import Path

from openmanus_rl.agent.strategies import find_strategy
from openmanus_rl.agent.templates import find_template
from openmanus_rl.algorithms.registry import estimator_options, find_estimator, find_loss, loss_options
from openmanus_rl.config.effect import check_effect
from openmanus_rl.config.load import differing_keys, given_keys, load_config, override_keys
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.tasks import effective_options
from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.client.remote import is_remote
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.places import BUILT_IN, check_places
from openmanus_rl.workers.registry import find_worker

PROVIDED = frozenset({"critic", "group", "greedy", "state_key"})
"""What the trainer can give an estimator that requires it."""


def load_checked_config(
    preset: Path | None, overrides: Sequence[str], algorithm: str | None = None, *, gives_credit: bool = True
) -> RunConfig:
    """The preset must make sense by itself; each override must have an effect in the mode they choose together.

    A preset may be a whole printed config: a key that stands at its default is never blamed. `algorithm`, grpo or ppo,
    is what was asked for beside a preset that did not come of it. `gives_credit` is False for what asks no estimator:
    then its groups may be of any size.
    """
    if preset is not None:
        alone = load_config(preset)
        changed = {key for key, *_ in differing_keys(alone, RunConfig())}
        entry = find_estimator(alone.algorithm.estimator)
        check_effect(alone, changed & set(given_keys(alone)), entry.requires, entry.credit)
    config = load_run_config(preset, overrides)
    if algorithm not in (None, script_of(config)):
        raise UserError(
            f"{preset} trains with {config.algorithm.estimator}, not with {algorithm}.",
            f"Use ./train_{script_of(config)}.sh, or openmanus-rl train without --algorithm.",
        )
    if gives_credit:
        _check_siblings(config)
    return config


def script_of(config: RunConfig) -> str:
    """Which of the two scripts trains so: ppo with a critic, grpo without."""
    return "ppo" if "critic" in find_estimator(config.algorithm.estimator).requires else "grpo"


def _check_siblings(config: RunConfig) -> None:
    """An estimator that compares the episodes of a group has some to compare."""
    estimator, size = config.algorithm.estimator, config.rollout.group_size
    if "group" in find_estimator(estimator).requires and size < 2:
        raise UserError(
            f"rollout.group_size={size}: {estimator} compares the episodes of a group and needs at least 2.",
            "Raise it, or choose an estimator that needs no group (gae, turn_gae).",
        )


def _check_strategy(config: RunConfig) -> None:
    """A strategy that tries several ways needs a world that can be copied."""
    name = config.rollout.validation_strategy
    strategy = find_strategy(name, config.rollout.validation_strategy_options)
    if not strategy.chooses:
        return
    for world in config.worlds:
        if is_remote(world.name) or environment_class(world.name).snapshot is Environment.snapshot:
            raise UserError(
                f"rollout.validation_strategy={name} plays in copies of the world, and {world.name} cannot be copied.",
                "Use it with a world that has snapshot() and restore(), or set rollout.validation_strategy=plain.",
            )


def _check_states(config: RunConfig) -> None:
    """An estimator that compares turns from the same state needs a world that tells its states."""
    for world in config.worlds:
        if not is_remote(world.name) and environment_class(world.name).state_key is Environment.state_key:
            raise UserError(
                f"algorithm.estimator={config.algorithm.estimator} compares turns from the same state, and "
                f"{world.name} tells none.",
                "Give the world a state_key, or choose another estimator.",
            )


def _check_kl_in_reward(config: RunConfig) -> None:
    """Where all scores are alike, a division by their deviation would make a little KL as large as success."""
    algorithm = config.algorithm
    entry, options = find_estimator(algorithm.estimator), estimator_options(algorithm.estimator, algorithm.options)
    keeps_equals = entry.credit != "episode" or not algorithm.drop_zero_variance_groups
    if algorithm.kl.where == "reward" and keeps_equals and getattr(options, "normalise_std", False):
        raise UserError(
            f"algorithm.kl.where=reward: {algorithm.estimator} divides by a deviation; where scores are alike, that of "
            "the KL alone, which would then count as much as success.",
            "Set algorithm.kl.where=loss, or algorithm.options.normalise_std=false.",
        )


def load_run_config(stored: Path | None, overrides: Sequence[str]) -> RunConfig:
    """The config of a run, which was checked when that began, with overrides that must each have an effect."""
    config = load_config(stored, overrides)
    entry = find_estimator(config.algorithm.estimator)
    requires = entry.requires
    check_effect(config, override_keys(overrides), requires, entry.credit)
    _check_kl_in_reward(config)
    loss_options(config.algorithm.loss, config.algorithm.loss_options)
    RewardManager(config.algorithm, config.agent.max_episode_tokens)
    for world in config.worlds:
        find_template(config.template_in(world))
    _check_strategy(config)
    for world in config.worlds:
        effective_options(world.name, world.options)
        effective_options(world.name, {**world.options, **config.warm_start.env_options})
        if is_remote(world.name) and not world.urls:
            raise UserError(
                f"env.name={world.name} is played on AgentGym's own servers, and none is named.",
                "Set env.urls=[http://HOST:PORT].",
            )
    if "state_key" in requires:
        _check_states(config)
    if missing := requires - PROVIDED:
        raise UserError(
            f"algorithm.estimator={config.algorithm.estimator} requires {', '.join(sorted(missing))}, "
            "which the trainer does not provide.",
            f"It provides {', '.join(sorted(PROVIDED))}.",
        )
    for half in (entry, find_loss(config.algorithm.loss)):
        if half.aggregation not in (None, config.algorithm.aggregation):
            raise UserError(
                f"algorithm.aggregation={config.algorithm.aggregation}: {half.name} is half an algorithm without its "
                "own.",
                f"Set algorithm.aggregation={half.aggregation}.",
            )
    check_places(config, requires)
    for role, worker in config.trainer.workers.items():
        worker_cls = find_worker(worker)
        if role not in BUILT_IN and not hasattr(worker_cls, "enrich"):
            raise UserError(
                f"trainer.workers.{role}={worker}: a role of your own needs a method `enrich`; this class has none.",
                f"The trainer's own roles are {', '.join(BUILT_IN)}; docs/workers.md has an example of another.",
            )
    if config.trainer.deterministic and config.rollout.engine != "embedded":
        raise UserError(
            f"trainer.deterministic=true: rollout.engine={config.rollout.engine} batches by arrival; its bits differ.",
            "Set rollout.engine=embedded, or leave trainer.deterministic off.",
        )
    if config.trainer.deterministic and config.rollout.oversample:
        raise UserError(
            f"trainer.deterministic=true: with rollout.oversample={config.rollout.oversample} the clock decides which "
            "episodes count.",
            "Set rollout.oversample=0, or leave trainer.deterministic off.",
        )
    _check_ahead(config)
    if config.rollout.temperature == 0:
        raise UserError("rollout.temperature=0 explores nothing, so nothing can be learnt.", "Set it to 1.0.")
    return config


def _check_ahead(config: RunConfig) -> None:
    """What is played ahead is played by older policies: the loss must know by how much, and no two runs are alike."""
    ahead = f"rollout.ahead={config.rollout.ahead}"
    if not config.rollout.ahead:
        return
    if config.trainer.deterministic:
        raise UserError(
            f"{ahead}: new weights reach episodes wherever they happen to be; trainer.deterministic=true cannot hold.",
            "Set rollout.ahead=0, or leave trainer.deterministic off.",
        )
    if config.actor.proximal != "recompute" or config.algorithm.correction.kind == "none":
        raise UserError(
            f"{ahead} trains on tokens of older policies, which the loss must be corrected for.",
            "Set actor.proximal=recompute and algorithm.correction.kind=token (or sequence).",
        )
