"""Every key has an effect or is an error: which given keys the chosen mode would ignore, and why."""

from collections.abc import Iterable, Set
from fnmatch import fnmatch

from openmanus_rl.config.schema import OptimConfig, RunConfig
from openmanus_rl.errors import UserError


def check_effect(config: RunConfig, given: Iterable[str], requires: Set[str], credit: str = "token") -> None:
    """Refuse a given key without effect.

    `requires` is what the chosen estimator needs (`critic`, `group`, …); `credit` is what it tells apart, `token` or
    only `episode`.
    """
    rules = _ignored(config, requires) + _ignored_by_credit(config, requires, credit)
    for key in sorted(given):
        for pattern, reason, remedy in rules:
            if fnmatch(key, pattern):
                raise UserError(f"{key} has no effect: {reason}.", f"Remove it, or {remedy}.")


def check_used(given: Iterable[str], verb: str) -> None:
    """Refuse a given key that `verb` does not read."""
    used = USED_BY[verb]
    for key in sorted(given):
        if not any(fnmatch(key, pattern) for pattern in used):
            raise UserError(f"{key} has no effect on {verb}.", f"Remove it. {verb} reads: {', '.join(used)}.")


def refuse_other_verbs(given: Iterable[str], verb: str) -> None:
    """Refuse a given key of a section that is another verb's alone."""
    for key in sorted(given):
        section = key.partition(".")[0]
        if section in ("evolve", "dpo"):
            raise UserError(f"{key} has no effect on {verb}.", f"Remove it. It is for: openmanus-rl {section}.")


_FINE_TUNING = (
    "model.path",
    "model.tiny.*",
    "model.lora.*",
    "model.max_context",
    "model.keep_history",
    "model.chat_options*",
    "warm_start.epochs",
    "warm_start.lr",
    "warm_start.batch_tokens",
    "warm_start.packing",
    "warm_start.validation_share",
    "warm_start.patience",
    "actor.micro_batch_tokens",
    "trainer.cache_dir",
    "trainer.seed",
    "trainer.threads",
)
_WORLD = ("env.name", "env.options*", "envs*")
_SELF_PLAY = (
    "env.*",
    "envs*",
    "data.*",
    "model.path",
    "model.tiny.*",
    "model.max_context",
    "model.keep_history",
    "model.chat_options*",
    "warm_start.*",
    "agent.*",
    "rollout.engine",
    "rollout.vllm.*",
    "rollout.group_size",
    "rollout.concurrency",
    "rollout.temperature",
    "rollout.validation_temperature",
    "rollout.episode_timeout",
    "rollout.retries",
    "algorithm.reward_*",
    "actor.micro_batch_tokens",
    "trainer.cache_dir",
    "trainer.seed",
    "trainer.deterministic",
    "trainer.threads",
)
USED_BY = {
    "sft": (
        *_WORLD,
        *_FINE_TUNING,
        "data.dir",
        "data.train_tasks",
        "warm_start.demonstrations",
        "warm_start.error_rate",
        "warm_start.env_options*",
        "agent.template",
        "agent.max_turns*",
    ),
    "sft --data": (*_FINE_TUNING, "envs*", "agent.template", "warm_start.data"),
    "evolve": (*_SELF_PLAY, "model.lora.*", "evolve.*"),
    "dpo": (*_SELF_PLAY, "model.lora.rank", "model.lora.alpha", "model.lora.target_modules", "dpo.*"),
    "eval": (
        "env.*",
        "envs*",
        "data.dir",
        "data.validation_*",
        "model.max_context",
        "model.keep_history",
        "model.chat_options*",
        "agent.*",
        "rollout.engine",
        "rollout.vllm.*",
        "rollout.endpoint.*",
        "rollout.concurrency",
        "rollout.episode_timeout",
        "rollout.retries",
        "rollout.failure_budget",
        "rollout.validation_*",
        "algorithm.reward_*",
        "trainer.cache_dir",
        "trainer.seed",
        "trainer.deterministic",
        "trainer.threads",
    ),
    "eval --policy": (*_WORLD, "data.validation_tasks", "trainer.seed"),
}
"""The keys that each verb beside `train` reads."""


_OWN_TRUNK = "set critic.trunk=own"


def _given_by_the_actor() -> list[str]:
    """The critic's keys that are the actor's where both are one model."""
    return [f"critic.{name}" for name in OptimConfig.model_fields]


def _ignored(config: RunConfig, requires: Set[str]) -> list[tuple[str, str, str]]:
    """Patterns of keys without effect, the reason, and what would give them one."""
    estimator = f"algorithm.estimator={config.algorithm.estimator}"
    kl = config.algorithm.kl
    rules = []
    if "critic" not in requires:
        remedy = "choose an estimator with a critic (gae, turn_gae)"
        rules.append(("critic.*", f"{estimator} trains no critic", remedy))
        rules.append(("algorithm.bootstrap_cut_episodes", f"{estimator} trains no critic", remedy))
    elif config.critic.trunk == "actor":
        for key in _given_by_the_actor():
            rules.append((key, "critic.trunk=actor: the critic learns with the actor's optimiser", _OWN_TRUNK))
    else:
        rules.append(
            ("critic.coefficient", "critic.trunk=own: the critic's loss is by itself", "set critic.trunk=actor")
        )
    if kl.where == "none":
        for name in ("kind", "coefficient", "target", "horizon"):
            rules.append((f"algorithm.kl.{name}", "algorithm.kl.where=none", "set algorithm.kl.where=reward or loss"))
    if kl.where == "reward" and kl.kind.endswith("+"):
        reason = "algorithm.kl.where=reward: what + changes is the gradient of the KL, and a reward has none"
        rules.append(("algorithm.kl.kind", reason, f"set algorithm.kl.kind={kl.kind.removesuffix('+')}"))
    if kl.where == "loss":
        rules.append(("algorithm.kl.target", "the KL in the loss has a fixed weight", "set algorithm.kl.where=reward"))
    if kl.target is None:
        rules.append(("algorithm.kl.horizon", "algorithm.kl.target is not set", "set algorithm.kl.target"))
    if config.actor.proximal == "rollout":
        reason = "actor.proximal=rollout: the old log-probs are the engine's own"
        rules.append(("algorithm.correction.*", reason, "set actor.proximal=recompute"))
    if config.algorithm.correction.kind == "none":
        remedy = "set algorithm.correction.kind=token or sequence"
        rules.append(("algorithm.correction.cap", "algorithm.correction.kind=none", remedy))
    if config.model.path != "tiny":
        rules.append(("model.tiny.*", f"model.path={config.model.path} is loaded, not built", "set model.path=tiny"))
    if not config.warm_starts:
        idle = ["epochs", "lr", "batch_tokens", "packing", "validation_share", "patience"]
        if config.model.path != "tiny":  # whose tokenizer is trained on demonstrations
            idle += ["data", "demonstrations", "error_rate", "env_options*"]
        for name in idle:
            rules.append((f"warm_start.{name}", "the run has no warm start", "set warm_start.enabled=true"))
    elif not config.warm_start.validation_share:
        reason, remedy = "warm_start.validation_share=0 holds nothing out", "set warm_start.validation_share"
        rules.append(("warm_start.patience", reason, remedy))
    if config.warm_start.data is not None:
        for name in ("demonstrations", "error_rate", "env_options*"):
            rules.append((f"warm_start.{name}", "warm_start.data is given, so no expert plays", "remove that"))
    if config.rollout.engine != "vllm":
        rules.append(("rollout.vllm.*", f"rollout.engine={config.rollout.engine}", "set rollout.engine=vllm"))
    if config.rollout.engine != "endpoint":
        rules.append(("rollout.endpoint.*", f"rollout.engine={config.rollout.engine}", "set rollout.engine=endpoint"))
    if config.agent.program is not None:
        for name in ("template", "max_turns", "context.*", "max_observation_tokens", "invalid_*"):
            reason = f"agent.program={config.agent.program} decides what is said"
            rules.append((f"agent.{name}", reason, "remove agent.program"))
    if not config.model.lora.rank:
        for name in ("alpha", "dropout", "target_modules"):
            rules.append((f"model.lora.{name}", "model.lora.rank=0: there are no adapters", "set model.lora.rank"))
    if config.trainer.executor != "ray":
        executor = f"trainer.executor={config.trainer.executor}"
        rules.append(("cluster.*", executor, "set trainer.executor=ray"))
        rules.append(("trainer.max_restarts", executor, "set trainer.executor=ray"))
    if config.agent.context.kind == "full":
        rules.append(("agent.context.turns", "agent.context.kind=full", "set agent.context.kind=window or summary"))
    if config.agent.context.kind != "summary":
        kind = f"agent.context.kind={config.agent.context.kind}"
        for name in ("max_summary_tokens", "train_summaries"):
            rules.append((f"agent.context.{name}", kind, "set agent.context.kind=summary"))
    if config.envs:
        rules.append(("env.*", "envs names the worlds of the run", "remove envs"))
    sections = {"env": config.env, **{f"envs.{name}": world for name, world in config.envs.items()}}
    for section, world in sections.items():
        if world.urls:
            for name in ("num_servers", "base_port"):
                reason = f"{section}.urls names servers that run already"
                rules.append((f"{section}.{name}", reason, f"remove {section}.urls"))
    if config.guard.action == "off":
        for name in ("sensitivity", "patience", "history", "least_history"):
            rules.append((f"guard.{name}", "guard.action=off", "set guard.action=warn, stop or rollback"))
    if config.guard.action != "rollback":
        for name in ("lr_factor", "max_rollbacks"):
            rules.append((f"guard.{name}", f"guard.action={config.guard.action}", "set guard.action=rollback"))
    return rules


def _ignored_by_credit(config: RunConfig, requires: Set[str], credit: str) -> list[tuple[str, str, str]]:
    """As `_ignored`, for the keys of rewards and groups."""
    algorithm = config.algorithm
    estimator = f"algorithm.estimator={algorithm.estimator}"
    rules = []
    if "group" not in requires:
        remedy = "choose an estimator that compares siblings (grpo)"
        rules.append(("algorithm.drop_zero_variance_groups", f"{estimator} does not compare siblings", remedy))
        rules.append(("rollout.refills", f"{estimator} does not compare siblings", remedy))
    elif credit != "episode":
        remedy = "choose an estimator of whole episodes (grpo)"
        for key in ("algorithm.drop_zero_variance_groups", "rollout.refills"):
            rules.append((key, f"{estimator} learns also from groups of equal returns", remedy))
    elif not algorithm.drop_zero_variance_groups:
        reason = "algorithm.drop_zero_variance_groups=false keeps every group"
        rules.append(("rollout.refills", reason, "set algorithm.drop_zero_variance_groups=true"))
    if credit == "episode":
        remedy = "choose an estimator that looks at tokens or turns (turn_gae, process)"
        for name in ("reward_allocation", "reward_discount"):
            rules.append((f"algorithm.{name}", f"{estimator} sees only an episode's whole return", remedy))
    if algorithm.reward_allocation != "discounted":
        reason = f"algorithm.reward_allocation={algorithm.reward_allocation}"
        rules.append(("algorithm.reward_discount", reason, "set algorithm.reward_allocation=discounted"))
    if "llm_judge" not in algorithm.reward_score_fn:
        reason = f"algorithm.reward_score_fn={algorithm.reward_score_fn} asks no judge"
        rules.append(("algorithm.reward_judge.*", reason, "add llm_judge to algorithm.reward_score_fn"))
    if not algorithm.reward_overlong_buffer:
        reason, remedy = "algorithm.reward_overlong_buffer=0", "set algorithm.reward_overlong_buffer"
        rules.append(("algorithm.reward_overlong_penalty", reason, remedy))
    return rules
