"""Which preset a command line means, and its flags as config overrides."""

from collections.abc import Sequence
from pathlib import Path

import openmanus_rl
from openmanus_rl.config.schema import EnvConfig
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.errors import UserError, did_you_mean

EXAMPLES = Path(openmanus_rl.__file__).parent.parent / "examples"
ALGORITHMS = ("grpo", "ppo")


def choose_preset(config: Path | None, algorithm: str, overrides: Sequence[str]) -> Path:
    """The given file, else the example for the world and algorithm, else the algorithm's own for any world."""
    if config is not None:
        return config
    if algorithm not in ALGORITHMS:
        raise UserError(f"--algorithm {algorithm} is not known. {did_you_mean(algorithm, ALGORITHMS)}")
    name = value_of("env.name", overrides) or EnvConfig().name
    environment_class(name)
    for candidate in (EXAMPLES / f"{name}_{algorithm}.yaml", EXAMPLES / f"{algorithm}.yaml"):
        if candidate.is_file():
            return candidate
    raise UserError(f"there are no presets in {EXAMPLES}.", "Pass one with --config.")


def value_of(key: str, overrides: Sequence[str]) -> str | None:
    """What the command line says last about `key`."""
    said = [word.removeprefix(f"{key}=") for word in overrides if word.startswith(f"{key}=")]
    return said[-1] if said else None


def flag_overrides(
    env_name: str | None,
    num_servers: int | None,
    base_port: int | None,
    data_dir: str | None,
    model: str | None,
    exp_name_suffix: str | None,
) -> list[str]:
    """The guide's flags in the config's words."""
    flags = {
        "env.name": env_name,
        "env.num_servers": num_servers,
        "env.base_port": base_port,
        "data.dir": data_dir,
        "model.path": model,
        "trainer.name_suffix": f"-{exp_name_suffix}" if exp_name_suffix else None,
    }
    return [f"{key}={value}" for key, value in flags.items() if value is not None]
