"""Several worlds in one run: drawn by weight, played on servers of their own, measured each by itself."""

import json

import pytest
from tiny_runs import drawn_tasks, json_lines

from openmanus_rl.agent.records import read_episodes
from openmanus_rl.config.load import load_config
from openmanus_rl.data.demonstrations import read_demonstrations
from openmanus_rl.data.sampler import MixedSampler, TaskSampler
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.run_directory import RunDirectory
from openmanus_rl.trainer.checked_config import load_run_config
from openmanus_rl.trainer.continuation import check_changes
from openmanus_rl.trainer.inputs import make_sampler, prepare_tasks
from openmanus_rl.trainer.run import train
from openmanus_rl.trainer.standalone import config_of, evaluate_baseline, evaluate_model

MIX = ["envs.maze.weight=3", "envs.maze.options.size=3", "envs.wordle.weight=1", "envs.wordle.template=tags"]


def test_draws_follow_the_weights_and_each_world_its_own_order():
    sampler = MixedSampler([10, 6], [3, 1], seed=7)
    drawn = sampler.next(40)
    for count in range(1, 41):
        assert abs(sum(index < 10 for index in drawn[:count]) - 0.75 * count) <= 1, "never far from its share"
    assert [index for index in drawn if index < 10] == TaskSampler(10, 7).next(30)
    assert [index - 10 for index in drawn if index >= 10] == TaskSampler(6, 7).next(10)


def test_a_mixture_goes_on_where_it_was_saved_and_only_with_the_same_weights():
    sampler, again = MixedSampler([10, 6], [3, 1], seed=7), MixedSampler([10, 6], [3, 1], seed=7)
    sampler.next(13)
    again.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    assert again.next(20) == sampler.next(20)
    with pytest.raises(UserError, match="was saved with the weights"):
        MixedSampler([10, 6], [1, 1], seed=7).load_state_dict(sampler.state_dict())


def test_one_world_is_drawn_in_the_order_it_always_was(place):
    config = place.config()
    tasks = prepare_tasks(config, "train", 16)
    assert make_sampler(tasks, config).next(40) == TaskSampler(16, config.trainer.seed).next(40)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([*MIX, "env.name=maze"], "env.name has no effect: envs names the worlds of the run"),
        (["envs.maze.wieght=3"], "Did you mean envs.maze.weight"),
        (["envs.a.name=maze", "envs.b.name=maze"], "two entries are the same world"),
        (["envs.maze.options.bulk=3"], "env.options: maze does not take"),
        (["envs.maze.urls=[http://127.0.0.1:1]", "envs.maze.num_servers=2"], "envs.maze.num_servers has no effect"),
    ],
)
def test_mistakes_are_named(words, why):
    with pytest.raises(UserError, match=why):
        load_run_config(None, words)


def test_names_weights_and_what_a_run_is_called():
    config = load_config(None, [*MIX, "envs.mine.name=toy_worlds:Counter"])
    assert [world.name for world in config.worlds] == ["maze", "wordle", "toy_worlds:Counter"]
    assert config.world_weights == [3.0, 1.0, 1.0]
    assert config.world_names == "maze+wordle+toy_worlds:Counter"
    assert load_config(None).world_names == "maze"


def test_a_run_of_two_worlds_trains_measures_each_and_can_be_evaluated(place):
    words = [*MIX, "trainer.steps=2", "trainer.validate_every=1", "trainer.save_every=1", "data.validation_tasks=5"]
    run = train(place.config(*words), preset=place.grpo)
    assert run.name == "maze-wordle-grpo"
    before, now = json_lines(run / "events.jsonl")[0]["changed"]["envs"]
    assert before == {}
    assert now["maze"]["weight"] == 3.0
    lines = json_lines(run / "metrics.jsonl")
    for line in lines:
        assert [line[f"val/success/{world}/n"] for world in ("maze", "wordle")] == [5, 5]
        successes = [round(5 * line[f"val/success/{world}/rate"]) for world in ("maze", "wordle")]
        assert line["val/success/rate"] == pytest.approx(sum(successes) / 10)
    for line in lines[1:]:
        assert [line[f"success/{world}/n"] for world in ("maze", "wordle")] == [6, 2], "3 to 1 of 4 groups"
    validation = run / "episodes" / "validation_step_000000.jsonl"
    played = json_lines(validation)
    assert [episode["env"] for episode in played] == ["maze"] * 5 + ["wordle"] * 5
    assert {path.name for path in (run / "env").iterdir()} == {"maze", "wordle"}
    acted = [one for one in read_episodes(validation) if one.turns and one.turns[0].action]
    assert acted
    assert all(("<action>" in one.turns[0].text) == (one.task.env == "wordle") for one in acted)
    told = read_demonstrations(next((place.shared / "cache").glob("maze-wordle-*")) / "demonstrations.parquet")
    written = {one.item_id.partition("_")[0]: one.messages[2]["content"].split()[0] for one in told}
    assert written == {"maze": "Thought:", "wordle": "<think>go</think>"}
    assert json.loads((run / "summary.json").read_text())["env"] == "maze+wordle"

    report = evaluate_model(config_of(run, []), str(run), "validation", 5, None)
    assert report.env == "maze+wordle"
    assert report.success.rate == lines[-1]["val/success/rate"]
    assert evaluate_baseline(config_of(run, []), "expert", "validation", 3).success.n == 6

    with RunDirectory(run) as directory:
        more = place.config(*words, "trainer.steps=3", "envs.maze.num_servers=2")
        assert set(check_changes(directory, more)) == {"trainer.steps", "envs.maze.num_servers"}
        with pytest.raises(UserError, match=r"envs\.wordle\.weight=1\.0; it cannot go on with"):
            check_changes(directory, place.config(*words, "envs.wordle.weight=2"))

    config = place.config(*words, "trainer.steps=3", f"trainer.resume={run}")
    assert train(config) == run
    tasks = prepare_tasks(config, "train", config.data.train_tasks)
    order = [tasks[index].item_id for index in make_sampler(tasks, config).next(12)]
    assert drawn_tasks(run, [1, 2, 3]) == order, "the third step goes on where the second stopped"
