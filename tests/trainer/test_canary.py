"""The canary: an engine that does not compute with the trainer's weights stops the run, with both numbers."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import json_lines

from openmanus_rl.config.schema import RolloutConfig, VllmConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.trainer.canary import CanaryDied, check_drift, largest_gap, probe, tolerance
from openmanus_rl.trainer.run import train


def test_equal_scores_pass_and_the_gap_is_told():
    assert largest_gap([-1.0, -2.0], [-1.0, -2.0001], 1e-3, "the engine") == pytest.approx(1e-4)


def test_a_difference_names_the_engine_and_both_numbers():
    with pytest.raises(
        CanaryDied, match=r"engine 1 .* probe token 2 is -2\.500000 there and -2\.000000 in the trainer"
    ):
        largest_gap([-1.0, -2.5], [-1.0, -2.0], 1e-3, "engine 1")


def test_a_score_that_is_no_number_is_a_difference():
    with pytest.raises(CanaryDied, match="nan"):
        largest_gap([float("nan")], [-1.0], 1e-3, "the engine")


def test_only_an_engine_of_lower_precision_may_differ_more():
    assert tolerance(RolloutConfig()) == tolerance(RolloutConfig(engine="vllm")) == 1e-3
    assert tolerance(RolloutConfig(engine="vllm", vllm=VllmConfig(dtype="bfloat16"))) == 0.5
    assert tolerance(RolloutConfig(canary_tolerance=0.1)) == 0.1


def test_the_probe_is_the_tasks_text_or_a_walk_over_the_vocabulary():
    def encode(text: str) -> list[int]:
        return [ord(letter) for letter in text]

    assert probe(Task("maze", "maze_1", prompt="a long enough task"), encode, 1000)[:2] == [97, 32]
    walk = probe(Task("maze", "maze_1", prompt=""), encode, 10)
    assert len(walk) == 64
    assert set(walk) == set(range(10))


def test_weights_that_did_not_arrive_stop_the_run_before_the_next_episode(place, monkeypatch):
    honest = EmbeddedEngine._take_weights

    def forgetful(self, source, version):
        honest(self, source, version)
        if version == 2:  # the engine now computes with something else than the actor
            with torch.inference_mode(mode=False), torch.no_grad():
                spoilt = {name: value.clone() for name, value in self._model.state_dict().items()}
                self._model = type(self._model)(self._model.config)
                self._model.load_state_dict({name: value + 0.05 for name, value in spoilt.items()})

    monkeypatch.setattr(EmbeddedEngine, "_take_weights", forgetful)
    with pytest.raises(CanaryDied, match="does not compute with the trainer's weights"):
        train(place.config("trainer.save_every=1"))
    (run,) = place.runs.iterdir()
    assert [line["step"] for line in json_lines(run / "metrics.jsonl")] == [0, 1]


def test_a_step_without_an_update_has_no_drift():
    check_drift({"actor/updated": 0.0}, 0.1)


def test_a_gap_that_is_no_number_is_drift():
    with pytest.raises(CanaryDied, match="nan"):
        check_drift({"rollout/log_prob_gap_mean": float("nan"), "rollout/log_prob_gap_max": float("nan")}, 0.1)


def test_an_engine_whose_log_probs_drift_stops_the_run_after_the_step_is_logged(place, monkeypatch):
    honest = EmbeddedEngine.generate

    async def drifting(self, *args, **more):
        completion = await honest(self, *args, **more)
        if self.version < 2:
            return completion
        return replace(completion, log_probs=[value - 0.25 for value in completion.log_probs])

    monkeypatch.setattr(EmbeddedEngine, "generate", drifting)
    with pytest.raises(CanaryDied, match=r"0\.25 from the trainer's .*trainer\.max_logprob_gap=0\.1"):
        train(place.config("trainer.max_logprob_gap=0.1", "algorithm.drop_zero_variance_groups=false"))
    (run,) = place.runs.iterdir()
    gaps = [line.get("rollout/log_prob_gap_mean") for line in json_lines(run / "metrics.jsonl")]
    assert gaps == [None, pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-4), pytest.approx(0.25, abs=1e-4)]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step_000000", "step_000002"]
