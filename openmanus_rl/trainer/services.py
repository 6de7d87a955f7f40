"""Step 1 of the loop: environment servers that are up."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.launch import launch_servers


@contextmanager
def environment_servers(config: RunConfig, log_dir: Path) -> Iterator[list[str]]:
    """URLs of servers: the config's own, or ones that live as long as this block."""
    if config.env.urls:
        yield config.env.urls
        return
    with launch_servers(
        config.env.name,
        options=config.env.options,
        count=config.env.num_servers,
        base_port=config.env.base_port,
        log_dir=log_dir,
    ) as servers:
        yield servers.urls
