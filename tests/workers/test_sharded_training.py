"""Two ranks, each with a part of the model, do what one process does. They run once, and every test looks at that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sharded_ranks import ROW_COUNTS, after_loading, config, everything, flat
from training_cases import critic_worker, distance

from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.workers.actor import ActorWorker
from openmanus_rl.workers.critic import CriticWorker

PROGRAM = Path(__file__).parent / "sharded_ranks.py"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(model_dir, played_rows, tmp_path_factory):
    """What one process found, and what each of two ranks did."""
    place = tmp_path_factory.mktemp("sharded")
    for name in ("one", "several"):
        (place / name).mkdir()
    played_rows.save_to_disk(place / "rows.pkl")
    critic_worker(model_dir).model.save(place / "learnt")
    one = everything(str(model_dir), str(place / "learnt"), played_rows, place / "one", place / "nothing")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    logs = [place / f"rank-{rank}.log" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), "2", str(model_dir), str(place)],
            stdout=logs[rank].open("w"),
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        codes = [process.wait(timeout=280) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert codes == [0, 0], "\n".join(log.read_text() for log in logs)
    return one, torch.load(place / "rank-0.pt"), torch.load(place / "rank-1.pt"), place


def close(one, other, tolerance):
    assert one.keys() == other.keys()
    assert distance(flat(other), flat(one)) < tolerance


def same_metrics(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if name == "perf/token_reuse":
            continue  # two ranks have fewer rows each to share beginnings
        # A token at the edge of the clip may be counted by rounding.
        tolerance = 0.03 if name.endswith("clipfrac") else 1e-5
        assert other[name] == pytest.approx(value, rel=1e-3, abs=tolerance), name


def test_each_rank_holds_half_of_the_model(results):
    one, first, second, _ = results
    held = [rank["actor"]["held"] for rank in (first, second)]
    assert sum(held) == first["actor"]["parameters"] == one["actor"]["parameters"]
    assert max(held) < 0.6 * one["actor"]["parameters"]


@pytest.mark.parametrize("role", ["actor", "critic"])
@pytest.mark.parametrize("count", ROW_COUNTS)
def test_gradients_are_those_of_one_process(results, role, count):
    one, several, _, _ = results
    assert float(one[role]["gradients"][count].norm()) > 1e-3
    assert distance(several[role]["gradients"][count], one[role]["gradients"][count]) < 1e-6


def test_weights_after_three_steps_of_sgd_are_those_of_one_process(results, model_dir):
    one, several, _, _ = results
    start = load_causal_lm(model_dir).state_dict()
    assert distance(flat(one["actor"]["sgd_weights"]), flat(start)) > 1e-3, "the steps moved them"
    close(one["actor"]["sgd_weights"], several["actor"]["sgd_weights"], 1e-6)


@pytest.mark.parametrize("role", ["actor", "critic", "lora"])
def test_weights_after_adamw_are_those_of_one_process(results, role):
    one, several, _, _ = results
    close(one[role]["weights"], several[role]["weights"], 1e-4)


@pytest.mark.parametrize("role", ["actor", "critic", "lora"])
def test_metrics_are_those_of_one_process_on_every_rank(results, role):
    one, first, second, _ = results
    assert first[role]["metrics"] == second[role]["metrics"]
    for expected, found in zip(one[role]["metrics"], first[role]["metrics"], strict=True):
        same_metrics(expected, found)


@pytest.mark.parametrize("count", ROW_COUNTS)
def test_log_probs_and_values_of_shared_rows_are_those_of_one_process(results, count):
    one, several, _, _ = results
    close(one["actor"]["log_probs"][count], several["actor"]["log_probs"][count], 1e-5)
    close(one["critic"]["values"][count], several["critic"]["values"][count], 1e-5)


def test_a_reference_and_a_score_are_those_of_one_process(results):
    one, first, second, _ = results
    close(one["actor"]["reference"], first["actor"]["reference"], 1e-5)
    assert first["actor"]["score"] == second["actor"]["score"] == pytest.approx(one["actor"]["score"], abs=1e-4)


def test_whole_weights_are_given_by_the_first_rank_only(results):
    one, first, second, _ = results
    assert first["actor"]["weights"].keys() == one["actor"]["weights"].keys()
    assert second["actor"]["weights"] == {}


@pytest.mark.parametrize("role", ["actor", "critic", "lora"])
def test_a_checkpoint_of_one_process_loads_on_two_ranks(results, role):
    one, several, _, _ = results
    assert one[role]["own_weights"].keys() == several[role]["others_weights"].keys()
    assert distance(flat(several[role]["others_weights"]), flat(one[role]["own_weights"])) == 0
    assert_same_optimiser(several[role]["others_optimiser"], one[role]["own_optimiser"])


@pytest.mark.parametrize("role", ["actor", "critic", "lora"])
def test_a_checkpoint_of_two_ranks_loads_in_one_process(results, role, model_dir):
    _, several, _, place = results
    lora = role == "lora"
    worker_cls = CriticWorker if role == "critic" else ActorWorker
    worker = worker_cls(str(model_dir), config(**({"model": {"lora": {"rank": 3}}} if lora else {})))
    loaded = after_loading(worker, place / "several" / ("lora" if lora else ""), "found")
    assert distance(flat(loaded["found_weights"]), flat(several[role]["own_weights"])) == 0
    assert_same_optimiser(loaded["found_optimiser"], several[role]["own_optimiser"])


def assert_same_optimiser(one, other):
    kinds = {name.split("/")[1] for name in one if name.startswith("adamw/")}
    assert kinds == {"step", "exp_avg", "exp_avg_sq"}
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_ranks_go_on_from_a_checkpoint_of_one_process_as_it_does(results):
    one, several, _, _ = results
    same_metrics(one["actor"]["metrics_after"], several["actor"]["resumed_metrics"])
    close(one["actor"]["weights_after"], several["actor"]["resumed_weights"], 1e-4)


def test_the_saved_model_is_a_plain_directory_with_the_whole_weights(results):
    _, several, _, place = results
    saved = load_causal_lm(place / "several" / "actor").state_dict()
    assert distance(flat(saved), flat(several["actor"]["weights"])) == 0


def test_only_adapters_train_and_the_reference_stays_on_two_ranks(results, model_dir):
    one, several, _, _ = results
    lora = several["lora"]
    close(one["lora"]["reference"], lora["reference"], 1e-5)
    close(lora["reference_before"], lora["reference"], 1e-6)
    close(one["lora"]["log_probs"], lora["log_probs"], 1e-4)
    base = load_causal_lm(model_dir).state_dict()
    frozen = {name.replace(".base_layer", ""): t for name, t in lora["state"].items() if ".lora_" not in name}
    assert frozen.keys() == base.keys()
    assert all(torch.equal(tensor, base[name]) for name, tensor in frozen.items())


def test_a_gradient_that_is_not_finite_is_refused_by_all_ranks(results):
    for rank in results[:3]:
        assert "not finite" in rank["refusal"]
