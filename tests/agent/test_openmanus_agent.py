"""Many episodes at once: retries, seeds, groups, and the way into rows and files."""

import socket
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from playing import Shaky, request, setting, task
from toy_worlds import Counter

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.openmanus import ENV_TO_TASK_CLASS, RolloutLimits, episode_seed, generation_batch
from openmanus_rl.agent.records import read_episodes
from openmanus_rl.agent.rewards import turn_rewards
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train
from openmanus_rl.config.schema import AlgorithmConfig
from openmanus_rl.envs.client.native import NativeClient
from openmanus_rl.envs.maze import Maze
from openmanus_rl.errors import UserError
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.protocol import DataProto
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.evaluate import evaluate
from openmanus_rl.viewer.single import episode_page

FAR = {"goal": 100}


def flaky_world(failures: int) -> type:
    """A counter whose first step fails in the first `failures` of its sessions, and a list of its sessions."""

    class Flaky(Shaky):
        started: list[int] = []  # noqa: RUF012 - shared on purpose: it outlives the sessions

        def reset(self, task):
            self.started.append(id(self))
            self.number = len(self.started)
            return super().reset(task)

        def misbehave(self, action):
            if self.number <= failures:
                raise OSError("the disk is full")

    return Flaky


def what_happened(episodes):
    return [
        (
            episode.task.item_id,
            episode.sample,
            episode.seed,
            episode.stop_reason,
            episode.segments[0].ids,
            [(turn.start, turn.end, turn.action, turn.reward, turn.state_key) for turn in episode.turns],
        )
        for episode in episodes
    ]


def test_a_failed_episode_is_played_again_in_a_fresh_session(models):
    world = flaky_world(failures=2)
    with setting(models / "obedient", world, rollout=RolloutLimits(retries=2)) as here:
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
        assert len(world.started) == 3
        assert len({session for session, _, _ in here.engine.heard}) == 3, "the engine's sessions are fresh too"
    assert (episode.stop_reason, episode.success, episode.failure) == (StopReason.DONE, True, "")
    assert [turn.reward for turn in episode.turns] == [1.0, 2.0, 3.0], "nothing of the failed tries is left"
    assert episode.failed_tries == [StopReason.ENV_FAILURE] * 2


def test_an_episode_that_keeps_failing_is_given_up_after_its_retries(models):
    world = flaky_world(failures=10)
    with setting(models / "obedient", world, rollout=RolloutLimits(retries=2)) as here:
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert len(world.started) == 3
    assert episode.stop_reason is StopReason.ENV_FAILURE


def test_a_good_episode_is_not_played_twice(models):
    world = flaky_world(failures=0)
    with setting(models / "obedient", world, rollout=RolloutLimits(retries=2)) as here:
        here.agent.play([request("up")])
    assert len(world.started) == 1


def test_a_failed_episode_leaves_its_group_and_the_others_stay(models):
    with setting(models / "obedient") as here:
        batch = generation_batch([task("up", 0), task("crash", 1), task("up", 2)], seed=0, temperature=0.0)
        rows = here.agent.run_llm_loop(batch.repeat(2))
        assert here.open_sessions() == 0
    assert rows.non_tensor_batch["item_id"].tolist() == ["counter_0", "counter_0", "counter_2", "counter_2"]
    assert rows.batch["group_index"].tolist() == [0, 0, 2, 2]
    assert rows.batch["episode_index"].tolist() == [0, 1, 2, 3]
    reasons = [str(episode.stop_reason) for episode in rows.meta_info["episodes"]]
    assert reasons == ["done", "done", "env_failure", "env_failure", "done", "done"]


def test_if_all_episodes_fail_the_error_says_why(models):
    with setting(models / "obedient") as here, pytest.raises(UserError, match=r"all 2 episodes failed.*ValueError"):
        here.agent.run_llm_loop(generation_batch([task("crash", 0), task("crash", 1)], seed=0, temperature=0.0))


def test_if_no_prompt_leaves_room_for_a_turn_the_error_says_so(models):
    with setting(models / "obedient", max_context=20) as here, pytest.raises(UserError, match="not one token") as told:
        here.agent.run_llm_loop(generation_batch([task()], seed=0, temperature=1.0))
    assert "model.max_context" in told.value.hint


def test_a_dead_server_fails_soon_and_hangs_nobody(models):
    """A start has two minutes; a refused connection does not wait for them."""
    with socket.socket() as refuses:
        refuses.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{refuses.getsockname()[1]}"
        with setting(models / "obedient", url=url) as here:
            began = time.monotonic()
            with pytest.raises(UserError, match="all 3 episodes failed"):
                here.agent.run_llm_loop(generation_batch([task(number=n) for n in range(3)], seed=0, temperature=1.0))
            assert time.monotonic() - began < 60


def test_a_users_mistake_is_raised_as_itself_and_closes_the_other_sessions(models):
    class Mistaken(NativeClient):
        async def step(self, handle, action):
            if handle.task.item_id == "counter_1":
                raise UserError("the wrong key", "Use the right one.")
            return await super().step(handle, action)

    with setting(models / "obedient", options=FAR, client=Mistaken) as here:
        with pytest.raises(UserError, match="the wrong key"):
            here.agent.play([request("doze", 0), request("up", 1), request("doze", 2)])
        assert here.open_sessions() == 0


def test_the_same_requests_in_another_order_or_number_at_once_are_the_same_episodes(models):
    requests = [
        request("up", number, sample=sample, seed=episode_seed(0, 1, f"counter_{number}", sample), temperature=1.3)
        for number in range(4)
        for sample in range(3)
    ]
    played = []
    model = load_causal_lm(models / "obedient").double()  # what rounding could change is out of the way
    for order, concurrency in ((requests, 256), (requests[::-1], 256), (requests[5:] + requests[:5], 2)):
        limits = RolloutLimits(concurrency=concurrency, retries=0)
        with setting(
            models / "obedient", Counter, options=FAR, agent={"max_turns": 4}, rollout=limits, model=model
        ) as here:
            played.append(sorted(what_happened(here.agent.play(order))))
    assert played[0] == played[1] == played[2]
    assert len({tuple(ids) for _, _, _, _, ids, _ in played[0]}) > 4, "the test needs episodes that differ"


def test_no_more_episodes_run_at_once_than_allowed(models):
    open_worlds, at_once = set(), []

    class Watched(Shaky):
        def reset(self, task):
            open_worlds.add(self)
            at_once.append(len(open_worlds))
            return super().reset(task)

        def close(self):
            open_worlds.discard(self)

    limits = RolloutLimits(concurrency=2, retries=0)
    with setting(models / "obedient", Watched, rollout=limits) as here:
        here.agent.play([request("up", number % 3) for number in range(8)])
    assert len(at_once) == 8
    assert max(at_once) == 2


def test_results_come_in_the_order_of_the_requests_and_each_end_is_told(models):
    told = []
    with setting(models / "obedient", Counter) as here:
        episodes = here.agent.play([request("up", number) for number in (0, 2, 1)], told.append)
    assert [episode.task.item_id for episode in episodes] == ["counter_0", "counter_2", "counter_1"]
    assert sorted(map(id, told)) == sorted(map(id, episodes))
    assert told[0] is episodes[1], "the shortest ends first"


def test_repeated_tasks_are_one_group_played_with_different_seeds(models):
    tasks = [task("up", 0), task("up", 1)]
    with setting(models / "obedient", Counter, options=FAR, agent={"max_turns": 3}) as here:
        batch = generation_batch(tasks, seed=4, temperature=1.3).repeat(3)
        rows = here.agent.run_llm_loop(batch, global_steps=9)
        again = here.agent.run_llm_loop(batch, global_steps=9)
        later = here.agent.run_llm_loop(batch, global_steps=10)
    episodes = rows.meta_info["episodes"]
    assert rows.batch["group_index"].tolist() == [0, 0, 0, 1, 1, 1]
    assert [episode.sample for episode in episodes] == [0, 1, 2, 0, 1, 2]
    expected = [episode_seed(4, 9, item, sample) for item in ("counter_0", "counter_1") for sample in range(3)]
    assert [episode.seed for episode in episodes] == expected
    assert len(set(expected)) == 6
    assert what_happened(again.meta_info["episodes"]) == what_happened(episodes)
    assert {episode.seed for episode in later.meta_info["episodes"]}.isdisjoint(expected)
    assert rows.meta_info["temperature"] == 1.3
    assert_only_sampled_tokens_train(rows)


def test_interleaved_or_tiled_rows_of_a_task_are_the_same_group_and_episodes(models):
    tasks = [task("up", 0), task("up", 1)]
    with setting(models / "obedient", Counter, options=FAR, agent={"max_turns": 2}) as here:
        batch = generation_batch(tasks, seed=4, temperature=1.3)
        side_by_side = here.agent.run_llm_loop(batch.repeat(2)).meta_info["episodes"]
        tiled = here.agent.run_llm_loop(batch.repeat(2, interleave=False)).meta_info["episodes"]
    assert [episode.group for episode in tiled] == [0, 1, 0, 1]
    assert sorted(what_happened(tiled)) == sorted(what_happened(side_by_side))


def test_a_batch_of_item_ids_and_instruction_tokens_is_played_like_the_tasks_it_means(models):
    with setting(models / "obedient", Counter) as here:
        pad = here.renderer.pad_token_id
        instructions = here.renderer.encode_content("up")
        ids = torch.tensor([[pad, pad, *instructions], [*instructions, pad, pad]])
        items = np.array(["counter_0", "counter_1"], dtype=object)
        by_item = DataProto.from_dict({"input_ids": ids}, {"item_id": items}, {"seed": 3, "temperature": 1.0, "run": 7})
        played = here.agent.run_llm_loop(by_item)
        by_task = here.agent.run_llm_loop(generation_batch([task("up", 0), task("up", 1)], seed=3, temperature=1.0))
    assert what_happened(played.meta_info["episodes"]) == what_happened(by_task.meta_info["episodes"])
    assert played.meta_info["run"] == 7


def test_a_batch_that_names_no_task_is_refused(models):
    with setting(models / "obedient") as here, pytest.raises(UserError, match="neither `task` nor `item_id`"):
        here.agent.run_llm_loop(DataProto.from_dict({"input_ids": torch.ones(1, 2, dtype=torch.long)}))


def test_a_single_rollout_plays_the_item_of_that_number(models):
    with setting(models / "obedient", env_name="playing:Shaky", options={"goal": 5}) as here:
        result = here.agent._run_single_rollout(torch.tensor([here.renderer.encode_content("up")]), 3)
    assert (result["item_id"], result["num_turns"], result["reward"]) == ("counter_3", 2, 9.0)
    assert (result["success"], result["stop_reason"]) == (True, "done")
    assert result["episode"].task.prompt == "up"


def test_results_become_rows_and_the_batchs_meta_info_is_kept(models):
    with setting(models / "obedient") as here:
        results = [
            here.agent._run_single_rollout(torch.tensor(here.renderer.encode_content(word)), number)
            for word, number in (("up", 0), ("crash", 1), ("up", 2))
        ]
        original = DataProto(meta_info={"kept": "yes"})
        rows = here.agent._convert_rollout_results_to_dataproto(results, original)
    assert rows.non_tensor_batch["item_id"].tolist() == ["counter_0", "counter_2"]
    assert rows.batch["token_level_scores"].sum(-1).tolist() == [6.0, 3.0]
    assert rows.meta_info["kept"] == "yes"
    assert len(rows.meta_info["episodes"]) == 3
    assert original.meta_info == {"kept": "yes"}


def test_predictions_become_action_types_and_contents(models):
    with setting(models / "obedient") as here:
        types, contents = here.agent.postprocess_predictions(
            ["Thought: a\nAction: up", "hm", 7, "Action: craft 1 table"]
        )
    assert types == ["action", "invalid", "invalid", "action"]
    assert contents[0] == "up"
    assert "Action:" in contents[1]
    assert contents[3] == "craft 1 table"


def test_episodes_are_written_with_the_rewards_they_are_trained_on_and_read_back(models, tmp_path):
    def doubled(episode):
        episode.scores = {"score": 2 * episode.episode_return}
        return [[(position, 2 * reward) for position, reward in part] for part in turn_rewards(episode)]

    with setting(models / "obedient", rewards=doubled) as here:
        batch = generation_batch([task("up", 0), task("crash", 1)], seed=0, temperature=0.0)
        rows = here.agent.run_llm_loop(batch, output_dir=str(tmp_path), global_steps=12)
    path = tmp_path / "episodes_step_000012.jsonl"
    assert read_episodes(path) == rows.meta_info["episodes"]
    assert read_episodes(path)[0].scores == {"score": 12.0}
    assert rows.batch["token_level_scores"].sum().item() == 12.0
    assert '"rewards": [0.0' in path.read_text()
    assert "4.0" in path.read_text().split('"rewards": ')[1]


def test_episodes_are_written_even_if_all_failed(models, tmp_path):
    with setting(models / "obedient") as here, pytest.raises(UserError):
        here.agent.run_llm_loop(generation_batch([task("crash")], seed=0, temperature=0.0), output_dir=str(tmp_path))
    assert read_episodes(tmp_path / "episodes_step_000000.jsonl")[0].stop_reason is StopReason.ENV_FAILURE


def test_visualize_writes_each_episode_as_a_page_of_its_own(models, tmp_path):
    batch = generation_batch([task("up", 0), task("babble", 1)], seed=0, temperature=0.0)
    with setting(models / "obedient") as here:
        with pytest.raises(UserError, match="needs an output_dir, and an agent that was given a page"):
            here.agent.run_llm_loop(batch, output_dir=str(tmp_path), visualize=True)
        here.agent.page = episode_page
        here.agent.run_llm_loop(batch, output_dir=str(tmp_path), global_steps=3, visualize=True)
    pages = sorted(tmp_path.glob("*.html"))
    assert [page.name for page in pages] == ["episodes_step_000003_0001.html", "episodes_step_000003_0002.html"]
    assert [f'"item_id":"counter_{number}"' in page.read_text() for number, page in enumerate(pages)] == [True, True]


def test_slip_12_validation_differs_from_training_in_neither_prompt_nor_parser_nor_success(models):
    tasks = [task("up", 0), task("babble", 1)]
    with setting(models / "obedient") as here:
        trained = here.agent.run_llm_loop(generation_batch(tasks, seed=0, temperature=0.0)).meta_info["episodes"]
        evaluation = evaluate(here.agent, tasks, seed=5, temperature=0.0)
    assert [played[3:] for played in what_happened(evaluation.episodes)] == [
        played[3:] for played in what_happened(trained)
    ]
    assert [episode.success for episode in evaluation.episodes] == [episode.success for episode in trained]
    assert evaluation.success.rate == sum(episode.success for episode in trained) / 2


def test_an_episode_whose_reward_raises_leaves_its_group_and_is_not_played_again(models, tmp_path):
    path = tmp_path / "moody_reward.py"
    path.write_text(
        "def score(solution_str, ground_truth, **kwargs):\n    return 1 / kwargs['extra_info']['divisor']\n"
    )
    rewards = RewardManager(AlgorithmConfig(reward_score_fn=f"{path}:score", reward_on_error="fail"), 4096)
    tasks = [replace(task("up", number), extra={"divisor": number}) for number in (0, 1, 2)]
    with setting(models / "obedient", rewards=rewards, judge=rewards.judge, rollout=RolloutLimits(retries=2)) as here:
        rows = here.agent.run_llm_loop(generation_batch(tasks, seed=0, temperature=0.0))
        evaluation = evaluate(here.agent, tasks, seed=0, temperature=0.0)
    failed, *scored = rows.meta_info["episodes"]
    assert failed.stop_reason is evaluation.episodes[0].stop_reason is StopReason.REWARD_FAILURE
    assert evaluation.success.n == evaluation.metrics()["val/success/n"] == 3, "success is the world's own"
    assert evaluation.metrics()["val/episode/count"] == 2
    assert failed.failed_tries == []
    assert [episode.scores for episode in scored] == [{"score": 1.0}, {"score": 0.5}]
    assert rows.batch["token_level_scores"].sum(-1).tolist() == [1.0, 0.5]


def test_a_reward_that_raises_ends_the_rollout_with_the_episode_shown(models, tmp_path):
    path = tmp_path / "asleep_reward.py"
    path.write_text("async def score(solution_str, ground_truth, **kwargs):\n    raise OSError('asleep')\n")
    rewards = RewardManager(AlgorithmConfig(reward_score_fn=f"{path}:score"), 4096)
    with (
        setting(models / "obedient", rewards=rewards, judge=rewards.judge) as here,
        pytest.raises(UserError, match="raised OSError: asleep") as caught,
    ):
        here.agent.run_llm_loop(generation_batch([task("up")], seed=0, temperature=0.0))
    assert "Action: up" in caught.value.hint


def test_environment_names_map_to_classes_and_the_map_cannot_be_changed():
    assert ENV_TO_TASK_CLASS["maze"] is Maze
    assert {"maze", "textcraft", "wordle"} <= set(ENV_TO_TASK_CLASS)
    with pytest.raises(TypeError):
        ENV_TO_TASK_CLASS["mine"] = Maze
    with pytest.raises(KeyError):
        ENV_TO_TASK_CLASS["mine"]
