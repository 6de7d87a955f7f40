"""Our client of AgentGym's servers plays our AgentGym routes: both sides read the protocol the same way."""

import asyncio

import pytest
from live_service import live_service

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client.agentgym import AgentGymClient
from openmanus_rl.envs.registry import environment_class

OPTIONS = {"webshop": {"num_products": 300}}


@pytest.mark.parametrize("name", ["searchqa", "sqlgym", "todo", "weather", "webshop"])
def test_the_expert_s_actions_succeed_over_the_wire(name):
    world, options = environment_class(name), OPTIONS.get(name, {})
    guide = world(**options)
    task = Task(name, next(world.item_ids("test", **options)))

    async def play(url):
        async with AgentGymClient(name, [url]) as client:
            handle = await client.start(task)
            assert handle.observation.text == guide.reset(task).text
            while not handle.done:
                action = guide.expert_action()
                result, _ = await client.step(handle, action)
                assert result.observation.text == guide.step(action).observation.text
            await client.close(handle)
            return result

    with live_service(world, options) as url:
        result = asyncio.run(play(url))
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)
