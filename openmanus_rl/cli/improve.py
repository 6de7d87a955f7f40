"""`openmanus-rl sft`, `evolve` and `dpo`: learning from conversations, and from what the model itself played."""

from pathlib import Path
from typing import Annotated

import typer

from openmanus_rl.cli.presets import choose_preset, flag_overrides, value_of
from openmanus_rl.cli.train import DataDir, EnvName, Model, Overrides, Preset
from openmanus_rl.config.effect import check_used
from openmanus_rl.config.load import override_keys
from openmanus_rl.config.schema import RunConfig

Output = Annotated[Path, typer.Option("--output", help="The run directory; the model is in its directory model/.")]


def sft(
    output: Output,
    overrides: Overrides = None,
    config: Preset = None,
    env_name: EnvName = None,
    data_dir: DataDir = None,
    model: Model = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Conversations (.json, .jsonl, .parquet). Default: the expert plays."),
    ] = None,
) -> None:
    """Supervised fine-tuning on conversations; the loss is on the assistant's tokens only."""
    words = flag_overrides(env_name, None, None, data_dir, model, None) + (overrides or [])
    if data is not None:
        words.append(f"warm_start.data={data}")
    given = value_of("warm_start.data", words) is not None
    check_used(override_keys(words), "sft --data" if given else "sft")
    words.append("warm_start.enabled=true")
    preset = choose_preset(config, "grpo", words)
    from openmanus_rl.trainer.checked_config import load_checked_config
    from openmanus_rl.trainer.sft_run import run_sft

    run_sft(load_checked_config(preset, words, gives_credit=False), output)


def evolve(
    output: Output,
    overrides: Overrides = None,
    config: Preset = None,
    env_name: EnvName = None,
    data_dir: DataDir = None,
    model: Model = None,
) -> None:
    """AgentEvol: explore, keep what succeeds, fine-tune from the base on it, again; one round is rejection sampling."""
    from openmanus_rl.trainer.evolve import run_evolve

    run_evolve(_config("evolve", overrides, config, env_name, data_dir, model), output)


def dpo(
    output: Output,
    overrides: Overrides = None,
    config: Preset = None,
    env_name: EnvName = None,
    data_dir: DataDir = None,
    model: Model = None,
) -> None:
    """DPO on pairs that the model played: a success against a failure of the same task."""
    from openmanus_rl.trainer.dpo import run_dpo

    run_dpo(_config("dpo", overrides, config, env_name, data_dir, model), output)


def _config(
    verb: str,
    overrides: list[str] | None,
    config: Path | None,
    env_name: str | None,
    data_dir: str | None,
    model: str | None,
) -> RunConfig:
    words = flag_overrides(env_name, None, None, data_dir, model, None) + (overrides or [])
    check_used(override_keys(words), verb)
    preset = choose_preset(config, "grpo", words)
    from openmanus_rl.trainer.checked_config import load_checked_config

    return load_checked_config(preset, words, gives_credit=False)
