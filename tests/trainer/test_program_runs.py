"""An agent written elsewhere is trained without a change to it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import json_lines

from openmanus_rl.errors import UserError
from openmanus_rl.trainer.run import train

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "http_agent.py"


def test_a_grpo_run_on_an_agent_of_plain_http_calls(place):
    program = f"agent.program={EXAMPLE}:solve"
    run = train(place.config(program, "trainer.steps=2", "algorithm.drop_zero_variance_groups=false"))
    for line in json_lines(run / "metrics.jsonl")[1:]:
        assert line["actor/updated"] == 1
        assert line["rollout/log_prob_gap_max"] < 1e-4, "the tokens that train are those that were sampled"
        assert line["actor/proven_tokens"] > 0
        assert line["episode/stop/done"] == 1
        episodes = json_lines(run / "episodes" / f"train_step_{line['step']:06d}.jsonl")
        assert len(episodes) == 8
        assert all(len(episode["segments"]) == 1 and episode["turns"] for episode in episodes)
        assert max(len(episode["turns"]) for episode in episodes) > 1
    before = load_file(run / "initial_model" / "model.safetensors")
    after = load_file(run / "checkpoints" / "step_000002" / "actor" / "model.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_key_that_a_program_decides_itself_is_an_error(place):
    with pytest.raises(UserError, match=r"agent\.max_turns has no effect: .* decides what is said"):
        place.config(f"agent.program={EXAMPLE}:solve", "agent.max_turns=3")
