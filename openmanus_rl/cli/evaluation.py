"""`openmanus-rl eval`: how good a checkpoint, a model, chance or the expert is on held-out tasks."""

import json
from pathlib import Path
from typing import Annotated

import typer

from openmanus_rl.cli.presets import choose_preset, flag_overrides
from openmanus_rl.cli.train import DataDir, EnvName, Overrides
from openmanus_rl.config.effect import check_used
from openmanus_rl.config.load import override_keys
from openmanus_rl.envs.base import SPLITS
from openmanus_rl.errors import UserError, did_you_mean


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A run directory, one of its checkpoints, or a model directory."),
    ] = None,
    overrides: Overrides = None,
    policy: Annotated[str | None, typer.Option(help="random or expert, in place of a model.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.")
    ] = None,
    named: Annotated[str | None, typer.Option("--model", help="With --endpoint: the model's name there.")] = None,
    demonstrations: Annotated[
        Path | None, typer.Option(help="With --endpoint: a file for what succeeded, which sft --data takes.")
    ] = None,
    env_name: EnvName = None,
    data_dir: DataDir = None,
    split: Annotated[str, typer.Option(help="validation, test or train.")] = "validation",
    n: Annotated[int | None, typer.Option("--n", min=1, help="Tasks to play. Default: data.validation_tasks.")] = None,
    episodes: Annotated[Path | None, typer.Option(help="Directory for the episodes, as JSON lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Held-out success with its interval; for a run's checkpoint, the same number as the trainer's validation."""
    if split not in SPLITS:
        raise UserError(f"--split {split} is not known. {did_you_mean(split, SPLITS)}")
    words = flag_overrides(env_name, None, None, data_dir, None, None) + (overrides or [])
    if model is not None and "=" in model and not Path(model).exists():
        words.append(model)
        model = None
    if sum(chosen is not None for chosen in (model, policy, endpoint)) != 1:
        raise UserError(
            "eval needs one of a model, --policy and --endpoint.", "For example: openmanus-rl eval runs/maze-grpo"
        )
    if endpoint is None and (named or demonstrations):
        raise UserError("--model and --demonstrations go with --endpoint.", "A model of your own is given as it is.")
    if endpoint is not None:
        words += [
            "rollout.engine=endpoint",
            f"rollout.endpoint.url={endpoint}",
            f"rollout.endpoint.model={named or ''}",
        ]
    check_used(override_keys(words), "eval --policy" if policy else "eval")
    from openmanus_rl.trainer.checked_config import load_checked_config
    from openmanus_rl.trainer.standalone import config_of, evaluate_baseline, evaluate_endpoint, evaluate_model, run_of

    run = run_of(Path(model)) if model else None
    config = config_of(run, words) if run else load_checked_config(choose_preset(None, "grpo", words), words)
    if model is not None:
        report = evaluate_model(config, model, split, n, episodes)
    elif endpoint is not None:
        report = evaluate_endpoint(config, split, n, episodes, demonstrations)
    else:
        report = evaluate_baseline(config, str(policy), split, n)
    typer.echo(json.dumps(report.to_dict()) if as_json else str(report))
