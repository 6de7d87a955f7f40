"""`OpenManusAgent`: many episodes at once over many sessions, and their way into a `DataProto`."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import uvloop

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.play import EpisodeRequest, Player, play_episode
from openmanus_rl.agent.records import EpisodePage, RecordDetails, write_episodes, write_pages
from openmanus_rl.agent.rewards import Judge, TokenRewards, turn_rewards
from openmanus_rl.agent.rows import episodes_to_rows, objects
from openmanus_rl.agent.schedule import RolloutLimits, play_requests
from openmanus_rl.config.schema import AgentConfig
from openmanus_rl.envs.base import Environment, Task, stable_hash
from openmanus_rl.envs.registry import ENVIRONMENTS, environment_class
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto

__all__ = ["ENV_TO_TASK_CLASS", "AgentConfig", "OpenManusAgent", "RolloutLimits", "generation_batch"]

ENV_TO_TASK_CLASS: Mapping[str, type[Environment]] = ENVIRONMENTS
"""Environment names and their classes: a read-only view of the registry."""


Result = TypeVar("Result")


class OpenManusAgent:
    """Plays tasks with a model and turns what happened into training data.

    Its methods are plain calls over asynchronous episodes: no episode waits for another. An episode whose world or
    engine fails starts afresh within `limits.retries`; after that it is no sample and leaves its group.
    """

    def __init__(
        self,
        player: Player,
        limits: RolloutLimits,
        rewards: TokenRewards = turn_rewards,
        judge: Judge | None = None,
        page: EpisodePage | None = None,
    ) -> None:
        """`page` draws an episode for `run_llm_loop(visualize=True)`: this room knows nothing of pages."""
        self.player = player
        self.limits = limits
        self.rewards = rewards
        self.judge = judge
        self.page = page
        self._running: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def run_llm_loop(
        self, gen_batch: DataProto, output_dir: str | None = None, global_steps: int = 0, visualize: bool = False
    ) -> DataProto:
        """Play every row of `gen_batch` and return the rows of its episodes, rewards on their tokens.

        A row is a `task` (see `generation_batch`), or an `item_id` with the instructions' tokens in `input_ids`.
        Failed episodes leave no row; `meta_info["episodes"]` has all of them. With `output_dir` they are also written
        there, one JSON object a line, and with `visualize` each as a page of its own as well.
        Once `meta_info["enough"]` episodes of a task are samples, the rest is aborted.
        """
        if visualize and (output_dir is None or self.page is None):
            raise UserError(
                "visualize=True needs an output_dir, and an agent that was given a page.",
                "OpenManusAgent(…, page=openmanus_rl.viewer.single.episode_page) draws one.",
            )
        requests = self._requests(gen_batch, global_steps)
        results = [_result(episode) for episode in self.play(requests, enough=gen_batch.meta_info.get("enough"))]
        if output_dir is not None:
            episodes = [result["episode"] for result in results]
            details = RecordDetails(self.rewards, self.player.renderer.pieces, step=global_steps)
            path = Path(output_dir) / f"episodes_step_{global_steps:06d}.jsonl"
            write_episodes(path, episodes, details)
            if visualize and self.page is not None:
                write_pages(path, self.page)
        return self._convert_rollout_results_to_dataproto(results, gen_batch)

    def play(
        self,
        requests: Sequence[EpisodeRequest],
        on_end: Callable[[Episode], None] | None = None,
        enough: int | None = None,
    ) -> list[Episode]:
        """Play all requests as `play_requests` does."""
        play = partial(play_episode, self.player)
        return self.run(play_requests(play, requests, self.limits, judge=self.judge, on_end=on_end, enough=enough))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run asynchronous work, such as a weight update of the engine, on the agent's event loop."""

        async def tracked() -> Result:
            self._running = asyncio.current_task()
            try:
                return await work
            finally:
                self._running = None

        try:
            return self._runner.run(tracked())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def interrupt(self) -> bool:
        """From a signal handler: end what runs with a `KeyboardInterrupt`, between two callbacks of the event loop.

        False if nothing runs.
        """
        if self._running is None:
            return False
        self._runner.get_loop().call_soon_threadsafe(self._running.cancel)
        return True

    def close(self) -> None:
        """End the event loop and the connections to the world."""
        self.run(self._end_episodes())
        self.run(self.player.client.aclose())
        self._runner.close()

    async def _end_episodes(self) -> None:
        """Cancel what an interrupt left under way, before its connections are closed."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _run_single_rollout(self, initial_prompt_ids: torch.Tensor, task_idx: int) -> dict[str, Any]:
        """Play task number `task_idx` of the world once, with instructions given as the tokens of their text."""
        name = self.player.env_name
        world = environment_class(name).name if ":" in name else name
        task = self._task(f"{world}_{task_idx}", initial_prompt_ids)
        request = EpisodeRequest(task, group=task_idx, sample=0, seed=task_idx, temperature=1.0)
        return _result(self.play([request])[0])

    def _convert_rollout_results_to_dataproto(
        self, results: list[dict[str, Any]], original_batch: DataProto
    ) -> DataProto:
        """Rows of all segments of the played episodes, rewards aligned with tokens; `meta_info` is kept."""
        episodes = [result["episode"] for result in results]
        samples = [episode for episode in episodes if episode.stop_reason.is_sample]
        if not samples:
            raise UserError(
                f"all {len(episodes)} episodes failed, the first by {episodes[0].stop_reason}: {episodes[0].failure}",
                "The environment servers' logs are in the run directory under env/.",
            )
        if not any(episode.sampled_tokens for episode in samples):
            raise UserError(
                f"not one token was sampled in {len(samples)} episodes: their prompts leave no room for a turn.",
                "Raise model.max_context, or lower agent.max_tokens_per_turn or agent.max_observation_tokens.",
            )
        rows = episodes_to_rows(samples, self.player.renderer.pad_token_id, self.rewards)
        rows.meta_info = {**original_batch.meta_info, "episodes": episodes}
        return rows

    def postprocess_predictions(self, predictions: list[Any]) -> tuple[list[str], list[str]]:
        """Answers to action types and contents, by the template in use: `action` and the action, `invalid` and why.

        A template may know more types, such as `search` and `answer`.
        """
        parsed = [self.player.template.read(str(prediction)) for prediction in predictions]
        contents = [answer.content if answer.content is not None else answer.action or "" for answer in parsed]
        return [answer.kind for answer in parsed], contents

    def _requests(self, gen_batch: DataProto, step: int) -> list[EpisodeRequest]:
        groups: dict[tuple[str, str], int] = {}
        played: Counter[tuple[str, str]] = Counter()
        requests = []
        for task in self._tasks(gen_batch):
            name = (task.env, task.item_id)
            group = groups.setdefault(name, len(groups))
            sample = played[name]
            played[name] += 1
            seed = episode_seed(gen_batch.meta_info.get("seed", 0), step, task.item_id, sample)
            temperature = gen_batch.meta_info.get("temperature", 1.0)
            requests.append(EpisodeRequest(task, group, sample, seed, temperature, step))
        return requests

    def _tasks(self, gen_batch: DataProto) -> list[Task]:
        if "task" in gen_batch.non_tensor_batch:
            return list(gen_batch.non_tensor_batch["task"])
        columns = gen_batch.batch if gen_batch.batch is not None else {}
        if "item_id" not in gen_batch.non_tensor_batch or "input_ids" not in columns:
            raise UserError(
                "the generation batch says neither `task` nor `item_id` with `input_ids`: nothing can be played.",
                "Make it with generation_batch(tasks, seed, temperature).",
            )
        item_ids = gen_batch.non_tensor_batch["item_id"]
        return [self._task(item_id, ids) for item_id, ids in zip(item_ids, columns["input_ids"], strict=True)]

    def _task(self, item_id: str, instruction_ids: torch.Tensor) -> Task:
        renderer = self.player.renderer
        ids = [token for token in instruction_ids.flatten().tolist() if token != renderer.pad_token_id]
        return Task(self.player.env_name, item_id, prompt=renderer.decode(ids))


def generation_batch(tasks: Sequence[Task], seed: int, temperature: float, enough: int | None = None) -> DataProto:
    """Tasks as the input of `run_llm_loop`, with the run's seed and the sampling temperature.

    Rows with the same item id are one group: `generation_batch(…).repeat(n)` plays each task n times, or until
    `enough` of its episodes are samples.
    """
    meta_info = {"seed": seed, "temperature": temperature, "enough": enough}
    return DataProto.from_dict(non_tensors={"task": objects(list(tasks))}, meta_info=meta_info)


def episode_seed(run_seed: int, step: int, item_id: str, sample: int) -> int:
    """The seed of one episode; it depends on nothing but these, so never on the order of arrival."""
    return stable_hash(f"{run_seed}/{step}/{item_id}/{sample}") >> 1


def _result(episode: Episode) -> dict[str, Any]:
    """An episode in the guide's form."""
    return {
        "episode": episode,
        "item_id": episode.task.item_id,
        "reward": episode.episode_return,
        "success": episode.success,
        "stop_reason": str(episode.stop_reason),
        "num_turns": len(episode.turns),
    }
