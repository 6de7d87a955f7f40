"""The one typed tree of a run. A field's docstring is its help; `openmanus-rl train --print-config` shows the tree."""

from typing import Any, Literal

from pydantic import Field, field_validator

from openmanus_rl.config.base import Config


class EnvConfig(Config):
    """The world that is played, and the servers it is played on."""

    name: str = "maze"
    """A built-in world (`openmanus-rl env list`), your own as module:Class, or agentgym/FAMILY on its own servers."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the world's class, e.g. env.options.size=5."""
    num_servers: int = Field(1, ge=1, le=64)
    """Server processes to start."""
    base_port: int | None = Field(None, ge=1, le=65535)
    """Port of the first server; the next ones follow. Unset: free ports are found."""
    urls: list[str] = Field(default_factory=list)
    """Servers that run already (`openmanus-rl env serve`, or AgentGym's for agentgym/FAMILY); none are started then."""
    request_timeout: float = Field(20.0, gt=0)
    """Seconds one call to the world may take, tries included, before the episode counts as failed."""


class MixedEnvConfig(EnvConfig):
    """One of several worlds of a run."""

    name: str = ""
    """The world; unset: the name it has under `envs`."""
    weight: float = Field(1.0, gt=0)
    """Its share of a step's tasks, relative to the other worlds'."""
    template: str | None = None
    """Action template in this world; unset: agent.template."""


class DataConfig(Config):
    """Where the tasks are, and how many."""

    dir: str = "data"
    """Holds <env>/train.parquet, validation.parquet and test.parquet; missing files are built."""
    train_tasks: int = Field(4096, ge=1)
    """Tasks in a world's training file when it is built; a world with fewer gives all it has."""
    validation_tasks: int = Field(256, ge=1)
    """Held-out tasks of each world on which success is measured, before, during and after training."""
    validation_samples: int = Field(1, ge=1)
    """Episodes per held-out task; more than 1 where a world has few tasks."""


class TinyModelConfig(Config):
    """The size of the model that is built when model.path is `tiny`."""

    hidden_size: int = Field(128, ge=8)
    """Width of the residual stream."""
    layers: int = Field(2, ge=1)
    """Transformer blocks."""
    heads: int = Field(4, ge=1)
    """Attention heads; must divide the width."""
    intermediate_size: int = Field(256, ge=8)
    """Width of the feed-forward layer."""
    vocab_size: int = Field(512, ge=300)
    """Largest vocabulary of the tokenizer that is trained on the world's text."""
    copying: bool = False
    """Begin with weights that copy what was said before: for worlds that tell the agent what to write."""


class LoraConfig(Config):
    """Adapters beside frozen weights: only they train, are saved and go to the engine."""

    rank: int = Field(0, ge=0)
    """Rank of the adapters; 0: none, all weights train."""
    alpha: int = Field(32, gt=0)
    """Their output is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of an adapter's inputs that are dropped in training."""
    target_modules: list[str] = Field(default_factory=list)
    """Names of the layers that get one; empty: every linear layer but the head."""


class ModelConfig(Config):
    """The policy that learns."""

    path: str = "tiny"
    """`tiny` builds a small model; else a directory, a name of `openmanus-rl models list`, or a hub id."""
    lora: LoraConfig = LoraConfig()
    tiny: TinyModelConfig = TinyModelConfig()
    max_context: int = Field(1024, ge=32)
    """Longest token list of one segment, prompt included."""
    keep_history: bool = False
    """Earlier turns stay as sampled where a chat template would rewrite them (Qwen3 drops thoughts); off: an error."""
    chat_options: dict[str, Any] = Field(default_factory=dict)
    """Variables of the model's chat template, e.g. model.chat_options.enable_thinking=false."""


class WarmStartConfig(Config):
    """Supervised fine-tuning on an imperfect expert, so that reinforcement learning has success to build on."""

    enabled: bool | None = None
    """Unset: only for the tiny model, which knows nothing yet; any other is trained as it is."""
    data: str | None = None
    """Conversations to learn from (.json, .jsonl or .parquet, docs/self-improvement.md); unset: the expert plays."""
    demonstrations: int = Field(640, ge=1)
    """Episodes the demonstrator plays; where there are fewer training tasks, it plays them again."""
    error_rate: float = Field(0.5, ge=0, le=1)
    """Share of the demonstrator's actions that are random."""
    env_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the world in the demonstrations only, over env.options, e.g. warm_start.env_options.renamed=true."""
    epochs: int = Field(3, ge=1)
    """Passes over the demonstrations."""
    lr: float = Field(2e-3, gt=0)
    """Peak learning rate of AdamW."""
    batch_tokens: int = Field(4096, ge=1)
    """Tokens in one optimiser step."""
    packing: bool | None = None
    """Conversations one after another in a row, none seeing another; unset: on a GPU, while a CPU sorts by length."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of the conversations that is held out: its loss is measured after each epoch, the best weights are kept."""
    patience: int = Field(2, ge=1)
    """Epochs without a lower validation loss after which it stops."""


class EvolveConfig(Config):
    """AgentEvol (openmanus-rl evolve): explore, keep what succeeds, fine-tune from the base, again."""

    rounds: int = Field(3, ge=1)
    """Times it explores and fine-tunes; 1 is rejection sampling."""
    tasks: int = Field(512, ge=1)
    """Training tasks explored in a round, each rollout.group_size times."""
    keep_per_task: int = Field(1, ge=1)
    """Episodes kept of a task over all rounds: the best that succeeded."""


class DpoConfig(Config):
    """DPO (openmanus-rl dpo) on a success and a failure of the same task."""

    beta: float = Field(0.1, gt=0)
    """How strongly the policy is held to where it started."""
    chosen_weight: float = Field(1.0, ge=0)
    """Weight of the successes' own likelihood beside the comparison; without it both episodes may become unlikely."""
    tasks: int = Field(512, ge=1)
    """Training tasks explored, each rollout.group_size times."""
    pairs_per_task: int = Field(2, ge=1)
    """Pairs taken of a task."""
    epochs: int = Field(1, ge=1)
    """Passes over the pairs."""
    lr: float = Field(3e-4, gt=0)
    """Peak learning rate of AdamW."""
    batch_pairs: int = Field(16, ge=1)
    """Pairs in one optimiser step."""


class ContextConfig(Config):
    """What the model sees of a long episode (docs/agent.md)."""

    kind: Literal["full", "window", "summary"] = "full"
    """All of it; the last turns; or notes that the model writes. The last two begin new segments."""
    turns: int = Field(8, ge=1)
    """n. window: a segment grows to 2n turns, the next starts with the last n; summary: notes after every n turns."""
    max_summary_tokens: int = Field(128, ge=1)
    """Tokens sampled for the notes."""
    train_summaries: bool = False
    """Whether the tokens of the notes train as well, with the credit of the turn before them."""


class AgentConfig(Config):
    """How the agent talks to a model and a world."""

    program: str | None = None
    """An agent written elsewhere that plays in the place of ours (docs/rollout.md), as module:function; unset: ours."""
    template: str = "react"
    """Action template (docs/agent.md): how a thought and an action are written and read; your own as module:name."""
    max_turns: int | dict[int, int] = 16
    """Turns of an episode; or a schedule of them by training step, e.g. {0: 5, 100: 10}. Validation plays the most."""
    context: ContextConfig = ContextConfig()
    max_tokens_per_turn: int = Field(32, ge=1)
    """Tokens sampled in one turn."""
    max_episode_tokens: int = Field(4096, ge=1)
    """Tokens sampled in one episode."""
    max_observation_tokens: int = Field(512, ge=8)
    """A longer observation is cut in the middle, with a mark."""
    invalid_action: Literal["tell", "end"] = "tell"
    """What follows an answer without a readable action: the agent is told why, or the episode ends."""
    invalid_penalty: float = Field(0.05, ge=0)
    """Subtracted from the reward of a turn whose answer has no readable action."""

    @field_validator("max_turns")
    @classmethod
    def _is_a_horizon(cls, value: int | dict[int, int]) -> int | dict[int, int]:
        if isinstance(value, dict) and (not value or not 0 <= min(value) <= 1):
            raise ValueError("a schedule says how many turns there are from the first step on, e.g. {0: 5, 100: 10}")
        if min(value.values() if isinstance(value, dict) else [value]) < 1:
            raise ValueError("an episode has at least one turn")
        return value

    def max_turns_at(self, step: int | None = None) -> int:
        """Turns of an episode that is played for training step `step`; the most there will be, if for none."""
        if isinstance(self.max_turns, int):
            return self.max_turns
        if step is None:
            return max(self.max_turns.values())
        return self.max_turns[max(since for since in self.max_turns if since <= max(step, 1))]


class VllmConfig(Config):
    """The engine vLLM (rollout.engine=vllm)."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of its weights and keys. Below float32 its log-probs differ from the trainer's by a few hundredths."""
    tensor_parallel_size: int = Field(1, ge=1)
    """Processes or GPUs that one replica is divided over."""
    block_size: int = Field(32, ge=1)
    """Tokens of one block of the prefix cache: whole blocks of a turn are found again in the next."""
    max_sequences: int = Field(64, ge=1)
    """Requests that one replica runs at once; more wait."""
    kv_cache_gb: float = Field(1.0, gt=0)
    """Memory of the keys and values on a CPU, in GB."""
    gpu_memory_share: float = Field(0.5, gt=0, le=1)
    """Share of a GPU's memory that vLLM may take."""


class EndpointConfig(Config):
    """A model behind an OpenAI-compatible endpoint (rollout.engine=endpoint), for evaluation and demonstrations."""

    url: str = ""
    """Its address up to /v1, e.g. http://127.0.0.1:8000/v1."""
    model: str = ""
    """The model's name there."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; it may be unset for an endpoint that wants none."""
    timeout: float = Field(120.0, gt=0)
    """Seconds to wait for one answer."""
    tries: int = Field(5, ge=1)
    """Calls for one answer: after no answer, status 429 or 5xx it is asked again, after a pause that doubles."""
    token_budget: int | None = Field(None, ge=1)
    """Tokens, as the endpoint counts them, after which no more is asked; unset: no limit."""


class RolloutConfig(Config):
    """How episodes are played for one training step."""

    engine: Literal["embedded", "vllm", "endpoint"] = "embedded"
    """What samples: an engine on torch, on the actor's own weights where it can; vLLM; in eval only, an endpoint."""
    vllm: VllmConfig = VllmConfig()
    endpoint: EndpointConfig = EndpointConfig()
    canary_tolerance: float | None = Field(None, gt=0)
    """Largest difference of log-probs between engine and trainer after a sync; unset: 1e-3, or 0.5 below float32."""
    tasks_per_step: int = Field(32, ge=1)
    """Tasks drawn for a step."""
    group_size: int = Field(4, ge=1)
    """Episodes played per task; estimators that compare siblings need at least 2."""
    ahead: int = Field(0, ge=0)
    """Steps whose episodes are played while an earlier step trains; 0: playing and training take turns."""
    concurrency: int = Field(256, ge=1)
    """Episodes under way at once."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature; the trainer's log-probs use the same."""
    validation_temperature: float = Field(1.0, ge=0)
    """Sampling temperature of validation episodes; 0 is greedy."""
    validation_strategy: str = "plain"
    """How validation episodes are played (docs/agent.md): plain, best_of_n, or your own as module:name."""
    validation_strategy_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the strategy, e.g. rollout.validation_strategy_options.n=8."""
    episode_timeout: float = Field(300.0, gt=0)
    """Seconds one episode may take before it counts as failed."""
    retries: int = Field(2, ge=0)
    """Fresh starts of an episode whose world or engine failed, before it leaves its group."""
    failure_budget: float = Field(1.5, ge=0)
    """Failed tries, relative to the episodes to be played, above which the run stops; a lost server costs up to 1."""
    oversample: int = Field(0, ge=0)
    """Episodes of a task beyond group_size; when group_size have ended the rest are aborted, so short ones win."""
    refills: int = Field(0, ge=0)
    """Times in a step that groups whose episodes all did equally well are replaced by other tasks (DAPO)."""


class KLConfig(Config):
    """Keeps the policy near the reference, the model that reinforcement learning started from."""

    where: Literal["none", "reward", "loss"] = "none"
    """Subtracted from the token rewards, added to the loss, or not used (then no reference is kept)."""
    kind: Literal["k1", "abs", "k2", "k3", "k1+", "abs+", "k2+", "k3+"] = "k3"
    """Which estimate of the divergence; with a +, its gradient in the loss is that of the divergence on average."""
    coefficient: float = Field(0.001, ge=0)
    """Its weight."""
    target: float | None = Field(None, gt=0)
    """With kl.where=reward: the coefficient adapts to hold the KL near this; unset, it is fixed."""
    horizon: int = Field(10_000, ge=1)
    """Episodes over which the adaptive coefficient moves."""


class CorrectionConfig(Config):
    """With actor.proximal=recompute: weights for tokens that the engine sampled with other probabilities."""

    kind: Literal["none", "token", "sequence"] = "none"
    """Weight of a token's loss: 1, its own probability ratio trainer / engine, or that of its whole episode."""
    cap: float = Field(2.0, ge=1)
    """Largest weight (truncated importance sampling)."""
    band: float | None = Field(None, gt=1)
    """Episodes whose mean ratio a token is outside 1/band to band get no loss; unset: all do."""


class JudgeConfig(Config):
    """The language model that the reward `llm_judge` asks; its key, if it wants one, is in OPENAI_API_KEY."""

    url: str = "http://127.0.0.1:8000/v1"
    """An OpenAI-compatible endpoint, up to and with its version."""
    model: str | None = None
    """The judge's name there."""
    instructions: str | None = None
    """What the judge is told; unset: to end with `Score: X` from 0 to 1, which yours must ask for too."""
    timeout: float = Field(60.0, gt=0)
    """Seconds for one episode, tries included; then its score counts as one that could not be had."""
    budget: int = Field(10_000, ge=1)
    """Requests that one call of the program may send; the next is an error."""
    max_tokens: int = Field(512, ge=1)
    """Tokens of a judge's answer."""


class AlgorithmConfig(Config):
    """What credit is, and what the policy's loss is."""

    estimator: str = "grpo"
    """Advantage estimator, or your own as module:function."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the estimator, e.g. algorithm.options.gamma=0.95."""
    loss: str = "ppo"
    """Policy loss, or your own as module:function."""
    loss_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the loss, e.g. algorithm.loss_options.clip_high=0.28."""
    aggregation: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    """How token losses become one number."""
    kl: KLConfig = KLConfig()
    correction: CorrectionConfig = CorrectionConfig()
    reward_score_fn: str = "agentgym"
    """A score function, your own as module:function, or a weighted sum, e.g. "agentgym + 0.1*format"."""
    reward_allocation: Literal["per_turn", "last_token", "uniform_positive", "discounted"] = "per_turn"
    """Tokens that a reward falls on (docs/rewards.md); estimators that look at whole episodes see only its sum."""
    reward_discount: float = Field(0.9, gt=0, le=1)
    """With reward_allocation=discounted: a turn's share of the score, relative to the turn after it."""
    reward_on_error: Literal["stop", "fail"] = "stop"
    """A score function that raises: the run stops and shows the episode, or the episode counts as failed."""
    reward_timeout: float = Field(300.0, gt=0)
    """Seconds that an episode's score may be waited for; then it could not be had, as if a function had raised."""
    reward_judge: JudgeConfig = JudgeConfig()
    reward_overlong_buffer: int = Field(0, ge=0)
    """The score falls over the last so many tokens below agent.max_episode_tokens (DAPO); 0: it does not."""
    reward_overlong_penalty: float = Field(1.0, gt=0)
    """How far the score has fallen at agent.max_episode_tokens."""
    bootstrap_cut_episodes: bool = True
    """Whether an episode cut short is worth the critic's value at its end; off: 0."""
    drop_zero_variance_groups: bool = True
    """Leave out groups whose episodes all did equally well: they teach estimators of whole episodes nothing."""


class OptimConfig(Config):
    """One optimiser step."""

    lr: float = Field(6e-4, gt=0)
    """Peak learning rate of AdamW."""
    warmup_steps: int = Field(0, ge=0)
    """Optimiser steps over which the learning rate rises from 0."""
    final_lr_ratio: float = Field(1.0, ge=0, le=1)
    """The learning rate falls linearly over the run to this share of its peak."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's decay."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest norm of the gradient."""
    epochs: int = Field(1, ge=1)
    """Passes over a step's episodes."""
    mini_batches: int = Field(2, ge=1)
    """Optimiser steps in one pass."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens, padding included, in one forward and backward pass; it bounds memory, not what is learnt."""
    layout: Literal["auto", "tree", "packed", "sorted"] = "auto"
    """How rows lie in a pass: shared beginnings once, one after another, padded by length, or the cheapest of these."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What matrices are multiplied in; weights, gradients and the optimiser's state are float32 in any case."""
    gradient_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of keeping what it computed: less memory, more time."""
    offload_optimiser: bool = False
    """Keep AdamW's state, between its steps, in main memory beside a GPU, or in a file below trainer.cache_dir."""


class ActorConfig(OptimConfig):
    """How the policy is updated."""

    entropy_coefficient: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""
    proximal: Literal["rollout", "recompute"] = "rollout"
    """Old log-probs: those of the engine that sampled, or recomputed by the trainer before the update."""


class CriticConfig(OptimConfig):
    """How the critic is updated (estimators that need one)."""

    lr: float = Field(1e-3, gt=0)
    """Peak learning rate of AdamW."""
    trunk: Literal["own", "actor"] = "own"
    """A model of its own, or a head on the actor's: then both learn in one pass, with the actor's optimiser."""
    coefficient: float = Field(0.5, gt=0)
    """With trunk=actor: weight of the critic's loss beside the policy's."""
    value_clip: float = Field(0.5, gt=0)
    """Farthest a value may move from its old one in an update before its loss is clipped."""


class TrainerConfig(Config):
    """The run as a whole."""

    steps: int = Field(60, ge=1)
    """Training steps: episodes, then one update."""
    max_seconds: float | None = Field(None, gt=0)
    """Training ends with the step that passes so many seconds of steps; unset: by trainer.steps."""
    seed: int = 0
    """Every random number of the run comes from it."""
    runs_dir: str = "runs"
    """Where run directories are made."""
    name: str | None = None
    """Name of the run directory; unset: <env>-<algorithm>, such as maze-grpo."""
    name_suffix: str = ""
    """Appended to the name."""
    resume: str = "auto"
    """auto: go on with an unfinished run of the same config; never; or the path of a run directory."""
    validate_every: int = Field(10, ge=1)
    """Steps between measurements on held-out tasks."""
    save_every: int = Field(10, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints kept; the best by validation success stays beside them."""
    cache_dir: str = ".cache"
    """Built and warm-started models, by the config that made them."""
    threads: int = Field(1, ge=1)
    """Threads of torch; a tiny model is slower with more than one. With rollout.ahead half train while half samples."""
    executor: Literal["inline", "ray"] = "inline"
    """Where workers run: in this process, or as Ray actors (see cluster)."""
    deterministic: bool = False
    """The same bits from the same seed: also after a resume, and on Ray with one rank."""
    max_logprob_gap: float = Field(0.5, gt=0)
    """Mean difference of the engine's and the trainer's log-probs of a step's tokens above which the run stops."""
    max_restarts: int = Field(3, ge=0)
    """With executor=ray: how often a run that lost a process goes on from its last checkpoint by itself."""
    workers: dict[str, str] = Field(default_factory=dict)
    """Worker classes of your own by role, e.g. trainer.workers.actor=my_file.py:MyActor."""


class PoolConfig(Config):
    """Processes that are alike, in which roles live."""

    nodes: int = Field(1, ge=1)
    """Machines that they are on; each gets ranks_per_node of them."""
    ranks_per_node: int = Field(1, ge=1)
    """Processes on each machine."""
    cpus_per_rank: float = Field(1.0, ge=0)
    """CPUs of a process; also its torch threads, rounded down, at least one."""
    gpus_per_rank: float = Field(0.0, ge=0)
    """GPUs of a process."""

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.nodes * self.ranks_per_node


class ClusterConfig(Config):
    """With executor=ray: which processes there are (one pool, `main`, if none is named), and which role lives where."""

    address: str = "local"
    """`local` starts Ray on this machine for this run; `auto` or host:port joins a cluster that runs."""
    pools: dict[str, PoolConfig] = Field(default_factory=lambda: {"main": PoolConfig()})
    """Pools by name, e.g. cluster.pools.main.ranks_per_node=2."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Pool of a role (actor, critic, reference, rollout), e.g. cluster.roles.rollout=sampling; unset: the first one."""
    start_timeout: float = Field(300.0, gt=0)
    """Seconds to wait for room in the cluster, also after a node was lost."""


class GuardConfig(Config):
    """What watches a run for collapse, against the run's own history."""

    action: Literal["off", "warn", "stop", "rollback"] = "warn"
    """On collapse: nothing is watched; it is said; the run ends; it goes back to the last good checkpoint."""
    sensitivity: float = Field(8.0, gt=0)
    """How many of its usual spreads a metric may be from its usual value."""
    patience: int = Field(2, ge=1)
    """Steps that it may stay outside before that is a collapse."""
    history: int = Field(20, ge=1)
    """Healthy steps that say what is usual."""
    least_history: int = Field(5, ge=1)
    """Healthy steps before history is judged by; limits beyond all measure hold from the first step."""
    lr_factor: float = Field(0.1, gt=0, lt=1)
    """With rollback: what the actor's learning rate is multiplied by."""
    max_rollbacks: int = Field(3, ge=1)
    """With rollback: how often; the next collapse ends the run."""

    @field_validator("action", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        """YAML takes a bare `off` for false."""
        return "off" if value is False else value


class TrackingConfig(Config):
    """What a run writes down beside its metrics."""

    train_episodes_per_step: int = Field(4, ge=0)
    """Training episodes written at each step; validation episodes always are."""
    tensorboard: bool = True
    """Write TensorBoard files."""
    wandb: str | None = None
    """Also log to this project of Weights & Biases; it takes the wandb package. null: do not."""


class RunConfig(Config):
    """A whole run."""

    env: EnvConfig = EnvConfig()
    envs: dict[str, MixedEnvConfig] = Field(default_factory=dict)
    """Several worlds in the place of `env`, by name, e.g. envs.maze.weight=2 envs.wordle.weight=1."""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evolve: EvolveConfig = EvolveConfig()
    dpo: DpoConfig = DpoConfig()
    agent: AgentConfig = AgentConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    actor: ActorConfig = ActorConfig()
    critic: CriticConfig = CriticConfig()
    trainer: TrainerConfig = TrainerConfig()
    cluster: ClusterConfig = ClusterConfig()
    guard: GuardConfig = GuardConfig()
    tracking: TrackingConfig = TrackingConfig()

    @field_validator("envs")
    @classmethod
    def _named(cls, envs: dict[str, MixedEnvConfig]) -> dict[str, MixedEnvConfig]:
        named = {key: entry.model_copy(update={"name": entry.name or key}) for key, entry in envs.items()}
        if len({entry.name for entry in named.values()}) < len(named):
            raise ValueError("two entries are the same world; give it once, with the weight of both")
        return named

    @property
    def worlds(self) -> list[EnvConfig]:
        """The worlds that are played: one, or several."""
        return [*self.envs.values()] or [self.env]

    @property
    def world_weights(self) -> list[float]:
        """Their shares of a step's tasks, relative to each other."""
        return [entry.weight for entry in self.envs.values()] or [1.0]

    def template_in(self, world: EnvConfig) -> str:
        """The name of the action template in one of the worlds."""
        own = world.template if isinstance(world, MixedEnvConfig) else None
        return own or self.agent.template

    @property
    def world_names(self) -> str:
        """What the run plays, in one word."""
        return "+".join(world.name for world in self.worlds)

    @property
    def warm_starts(self) -> bool:
        """Whether the run begins with supervised fine-tuning."""
        return self.model.path == "tiny" if self.warm_start.enabled is None else self.warm_start.enabled
