"""Several worlds in one run: a task goes to the client of its own."""

from collections.abc import Mapping

from openmanus_rl.envs.base import StepResult, Task
from openmanus_rl.envs.client.base import EnvironmentClient, Handle
from openmanus_rl.errors import UserError


class SeveralClients(EnvironmentClient):
    """Clients by the name of the world that they play."""

    def __init__(self, clients: Mapping[str, EnvironmentClient]) -> None:
        self._clients = dict(clients)

    async def start(self, task: Task) -> Handle:
        return await self._of(task).start(task)

    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        return await self._of(handle.task).step(handle, action)

    async def fork(self, handle: Handle) -> Handle:
        return await self._of(handle.task).fork(handle)

    async def close(self, handle: Handle) -> None:
        await self._of(handle.task).close(handle)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _of(self, task: Task) -> EnvironmentClient:
        if task.env not in self._clients:
            raise UserError(
                f"the task {task.item_id} is of {task.env}, which this run does not play.",
                f"It plays {', '.join(self._clients)}.",
            )
        return self._clients[task.env]
