"""A run whose critic is a head on the actor's model: it learns, is saved, and goes on."""

import pytest
from safetensors.torch import load_file
from tiny_runs import json_lines

from openmanus_rl.errors import UserError
from openmanus_rl.trainer.run import train


def test_a_run_with_one_trunk_learns_is_saved_and_goes_on(place):
    words = ["critic.trunk=actor", "trainer.name=trunk", "trainer.save_every=1", "data.validation_tasks=4"]
    run = train(place.config(*words, "trainer.steps=2", preset=place.ppo))
    run = train(place.config(*words, "trainer.steps=3", f"trainer.resume={run}", preset=place.ppo))
    lines = json_lines(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert all(line["critic/vf_loss"] > 0 for line in lines[1:])
    assert all("critic/grad_norm" not in line for line in lines), "there is one optimiser"
    heads = [load_file(path / "actor_value_head.safetensors") for path in sorted((run / "checkpoints").iterdir())]
    assert not heads[-1]["weight"].equal(heads[-2]["weight"])
    assert not (run / "checkpoints" / "step_000003" / "critic").exists()


def test_the_keys_of_an_optimiser_that_is_not_there_are_refused(place):
    with pytest.raises(UserError, match=r"critic\.lr has no effect: critic\.trunk=actor"):
        place.config("critic.trunk=actor", "critic.lr=0.1", preset=place.ppo)
    with pytest.raises(UserError, match=r"critic\.coefficient has no effect: critic\.trunk=own"):
        place.config("critic.coefficient=1.0", preset=place.ppo)
