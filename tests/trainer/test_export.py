"""A checkpoint becomes a plain model directory with a card; what cannot be exported is refused with its reason."""

import json
import shutil

import pytest
import torch
from tiny_runs import TinyPlace
from transformers import AutoModelForCausalLM, AutoTokenizer

from openmanus_rl.errors import UserError
from openmanus_rl.trainer.export import export
from openmanus_rl.trainer.run import train


@pytest.fixture(scope="module")
def adapted_run(shared_place, tmp_path_factory):
    place = TinyPlace(shared_place, tmp_path_factory.mktemp("adapted"))
    return train(place.config("model.lora.rank=2", "actor.lr=0.05", "guard.action=off", "trainer.steps=1"))


def same_weights(one, other):
    first, second = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_is_exported_as_a_plain_directory_with_a_card(cli, grpo_run, tmp_path):
    result = cli("export", str(grpo_run), "--output", str(tmp_path / "my-agent"))
    assert result.code == 0, result.err
    assert "checkpoints/step_000003" in result.out
    assert same_weights(tmp_path / "my-agent", grpo_run / "checkpoints" / "step_000003" / "actor")
    assert AutoTokenizer.from_pretrained(tmp_path / "my-agent").eos_token is not None
    card = (tmp_path / "my-agent" / "README.md").read_text()
    summary = json.loads((grpo_run / "summary.json").read_text())
    after = summary["success_after"]
    for expected in (
        "# my-agent",
        "| played | `maze` with {'size': 3} |",
        "| algorithm | `grpo` |",
        "| checkpoint | step 3 of 3 |",
        f"| trained on | {summary['episodes']} episodes of 64 tasks",
        f"{100 * after['rate']:.1f} % [{100 * after['low']:.1f}, {100 * after['high']:.1f}] n=12",
        f"torch {torch.__version__}",
        "estimator: grpo",
    ):
        assert expected in card


def test_a_checkpoint_or_the_best_one_can_be_chosen(grpo_run, tmp_path):
    older = grpo_run / "checkpoints" / "step_000002"
    assert export(older, tmp_path / "older", merge_lora=False, best=False).step == 2
    assert same_weights(tmp_path / "older", older / "actor")
    success = {
        path: json.loads((path / "manifest.json").read_text())["success"]
        for path in sorted((grpo_run / "checkpoints").iterdir())
    }
    best = export(grpo_run, tmp_path / "best", merge_lora=False, best=True)
    assert success[best.path] == max(value for value in success.values() if value is not None)


def test_adapters_are_merged_on_request_and_else_stay_adapters(adapted_run, tmp_path):
    export(adapted_run, tmp_path / "merged", merge_lora=True, best=False)
    export(adapted_run, tmp_path / "adapters", merge_lora=False, best=False)
    assert (tmp_path / "adapters" / "adapter_model.safetensors").is_file()
    assert not list((tmp_path / "merged").glob("adapter*"))
    assert not same_weights(tmp_path / "merged", adapted_run / "initial_model"), "the adapters are in it"
    assert "LoRA of rank 2, merged" in (tmp_path / "merged" / "README.md").read_text()
    ids = torch.tensor([[1, 2, 3, 4]])
    merged, adapted = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("merged", "adapters"))
    assert torch.allclose(merged(ids).logits, adapted(ids).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("damaged", r"is damaged: actor/model\.safetensors has 10 bytes instead of"),
        ("no adapters", r"has no adapters to merge"),
        ("taken", r"is there already"),
        ("no run", r"is no run and no checkpoint of one"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_its_reason(grpo_run, tmp_path, what, complaint):
    run = tmp_path / "run"
    shutil.copytree(grpo_run, run)
    source, output = run / "checkpoints" / "step_000003", tmp_path / "out"
    if what == "damaged":
        (source / "actor" / "model.safetensors").write_bytes(b"0123456789")
    if what == "taken":
        output.mkdir()
    if what == "no run":
        source = tmp_path
    with pytest.raises(UserError, match=complaint):
        export(source, output, merge_lora=what == "no adapters", best=False)
    assert what == "taken" or not output.exists()
