"""Step 1 of the loop: environment servers that are up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.launch import EnvServers, launch_servers
from openmanus_rl.errors import UserError


class Services:
    """Where a world is played: servers of this run, or ones of the user's own that run already."""

    def __init__(self, urls: list[str], servers: EnvServers | None = None) -> None:
        self.urls = urls
        self._servers = servers

    @property
    def pids(self) -> list[int]:
        """The servers of this run."""
        return self._servers.pids if self._servers else []

    @contextmanager
    def blamed_for_failures(self) -> Iterator[None]:
        """If the work of the block cannot go on and all servers of this run have ended, say that in its place."""
        try:
            yield
        except UserError as error:
            dead = self._servers.dead() if self._servers else {}
            if len(dead) < len(self.urls):
                raise
            url, end = next(iter(dead.items()))
            raise UserError(
                f"no environment server is left of {len(dead)}; that at {url} ended: {end}",
                "Mend that and call again; a run goes on from its last checkpoint.",
            ) from error


@contextmanager
def environment_servers(config: RunConfig, log_dir: Path, say: Callable[[str], None]) -> Iterator[Services]:
    """Servers: the config's own, or ones that live as long as this block; `say` is told of one that had to restart."""
    if config.env.urls:
        yield Services(config.env.urls)
        return
    with launch_servers(
        config.env.name,
        options=config.env.options,
        count=config.env.num_servers,
        base_port=config.env.base_port,
        log_dir=log_dir,
        say=say,
    ) as servers:
        yield Services(servers.urls, servers)
