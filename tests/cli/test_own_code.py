"""A user's own world and reward, in files of the current directory, work in a run."""

import json

import pytest
from tiny_runs import GRPO, json_lines, server_pids

WORLD = '''
from openmanus_rl.envs.base import ActionForm, ActionGrammar, Environment, Observation, StepResult, stable_hash


class Switch(Environment):
    """Say on or off, whichever is asked for."""

    name = "switch"
    grammar = ActionGrammar((ActionForm("on", "on"), ActionForm("off", "off")))
    success_rule = "the switch stands as asked"
    score_range = (0.0, 1.0)

    def __init__(self, words: int = 1) -> None:
        self.words = words

    def instructions(self):
        return "Set the switch. Actions: on, off."

    @classmethod
    def item_ids(cls, split, words=1):
        return (f"{split}_{number}" for number in range(40))

    def reset(self, task):
        self.wanted = "on" if stable_hash(task.item_id) % 2 else "off"
        return Observation(f"wanted: {self.wanted}" * self.words)

    def step(self, action):
        right = action == self.wanted
        return StepResult(Observation(""), float(right), True, False, right)

    def expert_action(self):
        return self.wanted

    def random_action(self, uniform):
        return "on" if uniform < 0.5 else "off"
'''

REWARD = '''
def brief(solution_str, ground_truth, *, success, episode, **others):
    """Success, less a little for every token."""
    return {"score": float(success) - 0.01 * episode.sampled_tokens, "tokens": episode.sampled_tokens}
'''


def test_an_own_world_and_an_own_reward_train(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_world.py").write_text(WORLD)
    (tmp_path / "my_reward.py").write_text(REWARD)
    sizes = [f"model.tiny.{name}={value}" for name, value in GRPO["model"]["tiny"].items()]
    result = cli(
        *["train", "--env_name", "my_world:Switch", "algorithm.reward_score_fn=my_reward:brief", *sizes],
        *["env.options.words=2", "warm_start.demonstrations=32", "warm_start.epochs=3", "warm_start.lr=0.01"],
        *["trainer.steps=2", "trainer.validate_every=2", "trainer.save_every=2", "trainer.threads=1"],
        *["rollout.tasks_per_step=4", "rollout.group_size=4", "data.validation_tasks=8"],
    )
    assert result.code == 0, result.err
    run = tmp_path / "runs" / "my_world-Switch-grpo"
    assert json.loads((run / "summary.json").read_text())["env"] == "my_world:Switch"
    assert (tmp_path / "data" / "my_world-Switch" / "train.parquet").exists()
    line = json_lines(run / "metrics.jsonl")[-1]
    assert line["critic/score/tokens/mean"] > 0
    expected = line["success/rate"] - 0.01 * line["critic/score/tokens/mean"]
    assert line["critic/score/mean"] == pytest.approx(expected)
    assert "val/critic/score/mean" in line
    for episode in json_lines(run / "episodes" / "train_step_000002.jsonl"):
        rewards = episode["segments"][0]["rewards"]
        assert abs(sum(rewards) - episode["scores"]["score"]) < 1e-9, "what is written is what was trained on"
    assert server_pids(run) == []
