"""Step 1 of the loop: environment servers that are up."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.tasks import directory_name
from openmanus_rl.envs.launch import EnvServers, launch_servers
from openmanus_rl.errors import UserError


class Services:
    """Where the worlds are played: servers of this run, or ones of the user's own that run already."""

    def __init__(self, urls: dict[str, list[str]], servers: dict[str, EnvServers]) -> None:
        self.urls = urls
        """By the world's name."""
        self._servers = servers

    @property
    def pids(self) -> list[int]:
        """The servers of this run."""
        return [pid for servers in self._servers.values() for pid in servers.pids]

    @contextmanager
    def blamed_for_failures(self) -> Iterator[None]:
        """If the work of the block cannot go on and all servers of a world have ended, say that in its place."""
        try:
            yield
        except UserError as error:
            for name, servers in self._servers.items():
                dead = servers.dead()
                if len(dead) < len(self.urls[name]):
                    continue
                url, end = next(iter(dead.items()))
                raise UserError(
                    f"no environment server is left of {len(dead)}; that at {url} ended: {end}",
                    "Mend that and call again; a run goes on from its last checkpoint.",
                ) from error
            raise


@contextmanager
def environment_servers(config: RunConfig, log_dir: Path, say: Callable[[str], None]) -> Iterator[Services]:
    """Servers: the config's own, or ones that live as long as this block; `say` is told of one that had to restart."""
    with ExitStack() as stack:
        servers = {
            world.name: stack.enter_context(
                launch_servers(
                    world.name,
                    options=world.options,
                    count=world.num_servers,
                    base_port=world.base_port,
                    log_dir=log_dir / directory_name(world.name) if config.envs else log_dir,
                    say=say,
                )
            )
            for world in config.worlds
            if not world.urls
        }
        urls = {world.name: world.urls or servers[world.name].urls for world in config.worlds}
        yield Services(urls, servers)
