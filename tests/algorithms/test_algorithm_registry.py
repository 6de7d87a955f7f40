import pytest
import torch
from credit_cases import play, to_batch

import openmanus_rl.algorithms  # noqa: F401  (registers the built-in algorithms)
from openmanus_rl.algorithms import core_algos
from openmanus_rl.algorithms.credit import Advantages
from openmanus_rl.algorithms.gae import GaeOptions
from openmanus_rl.algorithms.loss_ppo import PpoOptions
from openmanus_rl.algorithms.losses import LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import (
    ESTIMATORS,
    LOSSES,
    EstimatorEntry,
    LossEntry,
    estimator,
    estimator_options,
    find_estimator,
    find_loss,
    loss_options,
)
from openmanus_rl.config.base import Config
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto

OWN_FILE = """
from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.registry import estimator, policy_loss
from openmanus_rl.algorithms.losses import LossInputs, TokenLoss
from openmanus_rl.config.base import Config

class RawOptions(Config):
    scale: float = 1.0

@estimator("{name}", options=RawOptions)
def raw(batch: CreditBatch, options: RawOptions) -> Advantages:
    return batch.spread(batch.episode_returns() * options.scale)

@policy_loss("{name}", options=RawOptions)
def plain(inputs: LossInputs, options: RawOptions) -> TokenLoss:
    return TokenLoss(-inputs.log_probs_RT * inputs.advantages_RT)

def forgotten(batch, options):
    return None
"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own_credit.py"
    path.write_text(OWN_FILE.replace("{name}", tmp_path.name))
    return path


def test_the_built_in_algorithms_say_what_they_need():
    assert {name: set(ESTIMATORS[name].requires) for name in ("gae", "turn_gae", "grpo")} == {
        "gae": {"critic"},
        "turn_gae": {"critic"},
        "grpo": {"group"},
    }
    assert "ppo" in LOSSES


def test_given_options_become_typed_ones_and_the_rest_are_defaults():
    assert estimator_options("gae", {"lam": 0.5}) == GaeOptions(lam=0.5)
    assert loss_options("ppo", {}) == PpoOptions()


def test_a_mistyped_option_suggests_the_right_one_with_its_path():
    with pytest.raises(UserError, match=r"algorithm\.options\.gama .*Did you mean gamma\?"):
        estimator_options("gae", {"gama": 0.9})
    with pytest.raises(UserError, match=r"algorithm\.loss_options\.clip_hi .*Did you mean clip_high\?"):
        loss_options("ppo", {"clip_hi": 0.3})


def test_an_option_of_another_estimator_is_refused_with_its_owner():
    with pytest.raises(UserError, match="It is an option of gae, turn_gae"):
        estimator_options("grpo", {"lam": 0.9})


def test_a_value_out_of_range_names_its_key():
    with pytest.raises(UserError, match=r"algorithm\.options\.gamma=1\.5: input should be less than or equal to 1"):
        estimator_options("gae", {"gamma": 1.5})


def test_an_options_docstring_is_its_help_and_options_do_not_change():
    assert "sampled token" in GaeOptions.model_fields["gamma"].description
    with pytest.raises(ValueError, match="frozen"):
        GaeOptions().gamma = 0.5


def test_an_unknown_estimator_lists_the_known_ones():
    with pytest.raises(UserError, match=r"'gpro'\. Did you mean grpo\?"):
        find_estimator("gpro")


def test_a_users_own_estimator_and_loss_come_from_a_file_that_is_run_once(own_file):
    name = f"{own_file}:raw"
    batch = to_batch(play(0))
    found = find_estimator(name)
    assert found is find_estimator(name)
    options = estimator_options(name, {"scale": 2.0})
    expected = batch.spread(2 * batch.episode_returns())
    assert torch.equal(found(batch, options).advantages_RT, expected.advantages_RT)


def test_a_users_own_loss_comes_from_a_file(own_file):
    name = f"{own_file}:plain"
    assert find_loss(name).options(scale=3.0) == loss_options(name, {"scale": 3.0})


def test_a_function_without_the_decorator_is_refused_with_what_to_do(own_file):
    with pytest.raises(UserError, match="@estimator"):
        find_estimator(f"{own_file}:forgotten")


def test_a_requirement_the_trainer_does_not_know_is_refused():
    with pytest.raises(ValueError, match="critics"):
        estimator("wrong", requires={"critics"}, options=GaeOptions)


def rows_of_two():
    mask = torch.tensor([[True, False, True]])
    return DataProto.from_dict(
        {
            "token_level_rewards": torch.zeros(1, 3),
            "response_mask": mask,
            "turn_index": torch.tensor([[0, -1, 1]]),
            "group_index": torch.tensor([0]),
            "episode_index": torch.tensor([0]),
            "segment_index": torch.tensor([0]),
            "bootstrap": torch.tensor([False]),
        }
    )


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda batch: batch.response_mask_RT.float(), "gave a Tensor"),
        (lambda batch: Advantages(torch.zeros(1, 2)), r"shape \(1, 2\)"),
        (lambda batch: Advantages(batch.response_mask_RT / torch.zeros(1, 3)), "not finite"),
        (lambda batch: Advantages(torch.ones(1, 3)), "nobody sampled"),
        (lambda batch: Advantages(None), "gave advantages: a NoneType"),
        (lambda batch: Advantages([[0.0]]), "gave advantages: a list"),
        (lambda batch: Advantages(batch.response_mask_RT), r"gave advantages of torch\.bool"),
        (lambda batch: Advantages(torch.zeros(1, 3), torch.zeros(1, 3).long()), r"gave returns of torch\.int64"),
        (lambda batch: {}["reward"], r"raised KeyError: 'reward'\n.*In <lambda>, .*test_algorithm_registry\.py:\d+"),
        (
            lambda batch: batch.spread("all"),
            r"raised AttributeError: .*\n.*In <lambda>, .*test_algorithm_registry\.py:\d+",
        ),
    ],
)
def test_what_an_estimator_of_ones_own_answers_is_checked(answer, complaint, monkeypatch):
    entry = EstimatorEntry("mine", lambda batch, options: answer(batch), frozenset(), Config)
    monkeypatch.setattr(core_algos, "find_estimator", lambda name: entry)
    with pytest.raises(UserError, match=f"the estimator mine .*{complaint}"):
        core_algos.compute_advantage(rows_of_two(), "mine", Config())


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda inputs: torch.zeros(1, 3), "gave a Tensor"),
        (lambda inputs: TokenLoss(torch.zeros(3)), r"shape \(3,\)"),
        (lambda inputs: TokenLoss([[0.0, 0.0, 0.0]]), "gave a loss: a list"),
        (lambda inputs: TokenLoss(inputs.response_mask_RT), r"gave a loss of torch\.bool"),
        (lambda inputs: TokenLoss(inputs.log_probs_RT / 0), "not finite on sampled tokens"),
        (lambda inputs: {}["loss"], r"raised KeyError: 'loss'\n.*In <lambda>, .*test_algorithm_registry\.py:\d+"),
    ],
)
def test_what_a_loss_of_ones_own_answers_is_checked(answer, complaint):
    entry = LossEntry("mine", lambda inputs, options: answer(inputs), Config)
    zeros = torch.zeros(1, 3)
    with pytest.raises(UserError, match=f"the loss mine .*{complaint}"):
        entry(LossInputs(zeros, zeros, zeros, torch.ones(1, 3, dtype=torch.bool)), Config())


def test_a_loss_is_not_blamed_for_log_probs_that_are_broken_nor_for_tokens_that_nobody_sampled():
    entry = LossEntry("mine", lambda inputs, options: TokenLoss(inputs.log_probs_RT), Config)
    for log_probs, mask in (([0.0, torch.nan], [True, True]), ([0.0, torch.nan], [True, False])):
        given = torch.tensor([log_probs])
        assert entry(LossInputs(given, given, given, torch.tensor([mask])), Config()).loss_RT is given


def test_an_estimator_with_a_critic_must_say_what_to_teach_it(monkeypatch):
    entry = EstimatorEntry("mine", lambda batch, options: Advantages(torch.zeros(1, 3)), frozenset({"critic"}), Config)
    monkeypatch.setattr(core_algos, "find_estimator", lambda name: entry)
    rows = rows_of_two()
    rows.batch["values"] = torch.zeros(1, 3)
    with pytest.raises(UserError, match="the estimator mine requires a critic and gives no returns"):
        core_algos.compute_advantage(rows, "mine", Config())


def test_a_mistake_of_ours_keeps_its_trace():
    with pytest.raises(AttributeError):
        ESTIMATORS["grpo"](None, estimator_options("grpo", {}))
