"""Each of the fourteen slips, put into a copy of the code by hand: its test fails there, and passes without it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]
SLIPS_FILE = "tests/algorithms/test_credit_slips.py"


@dataclass(frozen=True)
class Slip:
    """A slip of the list, and the change to one place of the code that makes it."""

    number: int
    what: str
    file: str
    right: str
    wrong: str
    test: str
    """The test that must fail; all with this name, whatever their parameters."""
    where: str = SLIPS_FILE


TURN_NUMBER = "batch.sampled(batch.turn_index_RT)[batch.turns.first_N]"

SLIPS = [
    Slip(
        1,
        "returns begin anew after an observation",
        "algorithms/gae.py",
        "surprise_N = surprise(rewards_N, values_N, lines, batch.end_values_E(), options.gamma)\n    # Summed",
        "lines = batch.turns\n"
        "    surprise_N = surprise(rewards_N, values_N, lines, values_N.new_zeros(lines.lines), options.gamma)\n"
        "    # Summed",
        "test_slip_1_a_terminal_reward_credits_tokens_before_an_observation",
    ),
    Slip(
        2,
        "a reward on a token that was not sampled is taken, and lost under the mask",
        "algorithms/credit.py",
        "if lost_RT.any():",
        "if False:",
        "test_slip_2_a_reward_on_a_token_that_was_not_sampled_is_refused_with_its_place",
    ),
    Slip(
        2,
        "a turn's reward falls on the observation after it",
        "agent/rewards.py",
        "rewards.append((turn.end - 1, value + waiting))",
        "rewards.append((turn.end, value + waiting))",
        "test_slip_2_environment_rewards_fall_on_each_turns_last_sampled_token",
        "tests/rewards/test_allocation.py",
    ),
    Slip(
        2,
        "the reward of a turn without sampled tokens is dropped",
        "agent/rewards.py",
        "latest[-1] = (position, reward + value)",
        "latest[-1] = (position, reward)",
        "test_slip_2_the_reward_of_a_turn_without_sampled_tokens_goes_to_the_turn_before_it",
        "tests/rewards/test_allocation.py",
    ),
    Slip(
        3,
        "a mean over no tokens",
        "algorithms/losses.py",
        "loss_R.sum() / max(denominators.tokens, 1)",
        "loss_R.sum() / denominators.tokens",
        "test_slip_3_a_loss_over_an_all_masked_batch_is_zero_with_a_zero_gradient",
    ),
    Slip(
        4,
        "a group of one gets whatever the formula makes of it",
        "algorithms/groups.py",
        "if len(lone):",
        "if False:",
        "test_slip_4_a_group_of_one_is_an_error_that_names_the_group",
    ),
    Slip(
        5,
        "turns are compared with turns of their own number",
        "algorithms/process.py",
        "batch.group_index_E[batch.turn_episodes.line_N])",
        f"1000 * batch.group_index_E[batch.turn_episodes.line_N] + {TURN_NUMBER})",
        "test_slip_5_a_turn_is_not_compared_only_with_turns_of_its_own_number",
    ),
    Slip(
        5,
        "the number of a turn is its anchor",
        "algorithms/gigpo.py",
        "state_K = batch.turn_states()",
        f"state_K = {TURN_NUMBER}",
        "test_slip_5_a_turn_is_not_compared_only_with_turns_of_its_own_number",
    ),
    Slip(
        6,
        "a failed episode becomes a row of reward 0",
        "agent/rows.py",
        "failed = [episode for episode in episodes if not episode.stop_reason.is_sample]",
        "failed = []",
        "test_slip_6_a_failed_episode_is_no_sample_of_reward_0_and_the_group_counts_what_was_played",
    ),
    Slip(
        6,
        "a failed episode is scored",
        "rewards/score.py",
        "if not episode.stop_reason.is_sample:",
        "if False:",
        "test_slip_6_a_failed_episode_has_no_score",
        "tests/rewards/test_score_episode.py",
    ),
    Slip(
        7,
        "observations carry loss",
        "agent/rows.py",
        "mask[row, span] = True",
        "mask[row, : span.stop] = True",
        "test_slip_7_a_batch_that_would_train_on_what_was_not_sampled_is_stopped",
    ),
    Slip(
        7,
        "nothing compares what is trained on with what was sampled",
        "agent/rows.py",
        "if trained != sampled:",
        "if False:",
        "test_slip_7_a_batch_that_would_train_on_what_was_not_sampled_is_stopped",
    ),
    Slip(
        7,
        "episodes can be sampled with top-p",
        "config/schema.py",
        "    temperature: float = Field(1.0, ge=0)\n",
        "    top_p: float = 1.0\n    temperature: float = Field(1.0, ge=0)\n",
        "test_slip_7_episodes_cannot_be_sampled_from_a_cut_distribution_whose_log_probs_are_of_the_whole",
    ),
    Slip(
        8,
        "gae does not read lam",
        "algorithms/gae.py",
        "options.gamma * options.lam)\n    advantages_N",
        "options.gamma * 0.95)\n    advantages_N",
        "test_slip_8_every_option_of_every_estimator_changes_what_comes_out",
    ),
    Slip(
        8,
        "the loss does not read clip_high",
        "algorithms/loss_ppo.py",
        "1 + options.clip_high",
        "1 + options.clip_low",
        "test_slip_8_every_option_of_every_loss_changes_what_comes_out",
    ),
    Slip(
        8,
        "an option that nobody knows is passed over",
        "algorithms/registry.py",
        "if key not in known:",
        "if False:",
        "test_slip_8_lambda_is_spelled_one_way",
    ),
    Slip(
        9,
        "a mask of integers is as good as any",
        "algorithms/masks.py",
        "if response_mask.dtype != torch.bool:",
        "if False:",
        "test_slip_9_an_integer_mask_is_refused_wherever_it_could_index",
    ),
    Slip(
        10,
        "the score function is told a return of 0, whatever the world gave",
        "rewards/score.py",
        '"episode_return": episode.episode_return,',
        '"episode_return": 0.0,',
        "test_slip_10_a_score_function_of_ones_own_is_told_what_the_world_gave",
    ),
    Slip(
        10,
        "the world's rewards are counted as 0",
        "rewards/score.py",
        "total + weight * turn.reward for",
        "total for",
        "test_slip_10_what_the_world_gave_arrives_on_the_rows_whole",
    ),
    Slip(
        10,
        "a return that is missing is 0",
        "rewards/agentgym.py",
        'if "episode_return" not in kwargs:',
        'kwargs.setdefault("episode_return", 0.0)\n    if False:',
        "test_slip_10_agentgym_without_the_return_is_an_error_and_not_zero",
        "tests/rewards/test_score_functions.py",
    ),
    Slip(
        11,
        "the same episode is in its group twice",
        "algorithms/credit.py",
        "if ((episode_R[1:] == episode_R[:-1]) & (segment_R[1:] == segment_R[:-1])).any():",
        "if False:",
        "test_slip_11_an_episode_cannot_be_its_own_sibling",
    ),
    Slip(
        11,
        "siblings are played from one seed",
        "agent/openmanus.py",
        '{run_seed}/{step}/{item_id}/{sample}"',
        '{run_seed}/{step}/{item_id}"',
        "test_slip_11_an_episode_cannot_be_its_own_sibling",
    ),
    Slip(
        12,
        "validation has a prompt of its own",
        "trainer/evaluate.py",
        "EpisodeRequest(\n            task,",
        "EpisodeRequest(\n            type(task)(task.env, task.item_id, prompt='Now you are tested.'),",
        "test_slip_12_validation_differs_from_training_in_neither_prompt_nor_parser_nor_success",
        "tests/agent/test_openmanus_agent.py",
    ),
    Slip(
        12,
        "validation has a success rule of its own",
        "trainer/evaluate.py",
        "sum(episode.success for episode in played)",
        "sum(episode.episode_return > -1 for episode in played)",
        "test_slip_12_validation_differs_from_training_in_neither_prompt_nor_parser_nor_success",
        "tests/agent/test_openmanus_agent.py",
    ),
    Slip(
        13,
        "each micro-batch divides by its own tokens",
        "algorithms/losses.py",
        "loss_R.sum() / max(denominators.tokens, 1)",
        "loss_R.sum() / response_mask_RT.sum().clamp(min=1)",
        "test_slip_13_the_mean_over_unequal_micro_batches_is_over_tokens_not_over_micro_batches",
    ),
    Slip(
        14,
        "a group's mean is over rows",
        "algorithms/grpo.py",
        "mean_E, std_E = group_mean_std(returns_E, batch.group_index_E)",
        "of_rows = group_mean_std(returns_E[batch.episode_R], batch.group_index_R)\n"
        "    mean_E, std_E = (column_R[batch._last_row_E] for column_R in of_rows)",
        "test_slip_14_an_episode_of_several_rows_counts_once_in_its_group",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package and its tests, to be spoiled."""
    place = tmp_path_factory.mktemp("copy")
    for name in ("openmanus_rl", "tests", "examples"):
        shutil.copytree(HERE / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "pyproject.toml", place)
    return place


def outcome(copy: Path, *tests: str) -> str:
    """What pytest says of the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_there_is_a_change_for_each_of_the_fourteen():
    assert {slip.number for slip in SLIPS} == set(range(1, 15))
    assert all(slip.test.startswith(f"test_slip_{slip.number}_") for slip in SLIPS)


def test_the_copy_passes_as_it_is(copy):
    tests = sorted({f"{slip.where}::{slip.test}" for slip in SLIPS})
    assert outcome(copy, *tests).startswith("0\n")


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: f"slip {slip.number}: {slip.what}")
def test_the_slip_is_caught_by_its_test(copy, slip):
    path = copy / "openmanus_rl" / slip.file
    right = path.read_text()
    assert right.count(slip.right) >= 1, f"{slip.file} no longer has {slip.right!r}"
    path.write_text(right.replace(slip.right, slip.wrong))
    try:
        told = outcome(copy, f"{slip.where}::{slip.test}")
    finally:
        path.write_text(right)
    assert told.startswith("1\n"), told  # 1: tests ran and failed; 2 and above: they could not run
    assert f"FAILED {slip.where}::{slip.test}" in told
