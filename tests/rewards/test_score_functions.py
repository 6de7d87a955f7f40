import math

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.rewards import SUPPORTED_REWARD_SCORE_FNS, compute_score
from openmanus_rl.rewards.exact_match import normalise
from openmanus_rl.rewards.registry import find_score_function


def test_the_guides_rewards_are_registered():
    built_in = {"agentgym", "exact_match", "f1", "bleu", "rouge_l", "format", "length", "action_similarity"}
    built_in |= {"math", "llm_judge"}
    assert built_in <= set(SUPPORTED_REWARD_SCORE_FNS)


def test_agentgym_scores_what_the_environment_gave():
    assert compute_score("whatever", None, reward_score_fn="agentgym", episode_return=-0.25) == -0.25


def test_slip_10_agentgym_without_the_return_is_an_error_and_not_zero():
    with pytest.raises(UserError, match="without episode_return"):
        compute_score("whatever", None, reward_score_fn="agentgym")


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        ("Paris", "paris", 1.0),
        ("  the  Eiffel\nTower. ", "The Eiffel Tower", 1.0),
        ('"Paris."', "Paris", 1.0),
        ("Paris, France", "Paris", 0.0),
        ("3.5", "35", 0.0),
        ("-1", "1", 0.0),
        ("A", "a", 1.0),
        ("A", "B", 0.0),
        ("42", 42, 1.0),
        ("New York", ["NYC", "new york"], 1.0),
        ("Boston", ["NYC", "new york"], 0.0),
    ],
)
def test_exact_match_compares_normalised_text_with_any_expected_answer(answer, truth, score):
    assert compute_score(answer, truth, reward_score_fn="exact_match") == score


def test_exact_match_judges_the_action_where_one_was_read():
    text = "Thought: it is the capital.\nAction: Paris"
    assert compute_score(text, "Paris", reward_score_fn="exact_match", action="Paris") == 1.0
    assert compute_score(text, "Paris", reward_score_fn="exact_match", action=None) == 0.0


@pytest.mark.parametrize("truth", [None, []])
def test_exact_match_without_a_ground_truth_is_an_error_and_not_zero(truth):
    with pytest.raises(UserError, match="no ground truth"):
        compute_score("Paris", truth, reward_score_fn="exact_match")


@pytest.mark.parametrize(
    ("name", "answer", "truth", "score"),
    [
        ("f1", "the tower in Paris", "Paris", 2 * 1 / (4 + 1)),
        ("f1", "Paris Paris", "paris", 2 * 1 / 3),
        ("f1", "", "Paris", 0.0),
        ("f1", "Rome", ["Paris", "rome!"], 1.0),
        ("rouge_l", "a b c d", "a x c d", 2 * 3 / 8),
        ("rouge_l", "d c b a", "a b c d", 2 * 1 / 8),
        ("rouge_l", "same words", "same words", 1.0),
        ("bleu", "the cat sat on the mat", "the cat sat on the mat", 1.0),
        ("bleu", "the cat", "dogs bark", 0.0),
        # 1-grams 3/4, 2-grams (1+1)/(3+1), 3-grams (0+1)/(2+1), 4-grams (0+1)/(1+1); as long as the reference.
        ("bleu", "a b x c", "a b c d", (3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25),
        # One word of four: all precisions 1, brevity exp(1 - 4).
        ("bleu", "a", "a b c d", math.exp(-3)),
    ],
)
def test_scores_of_text_by_hand(name, answer, truth, score):
    assert compute_score(answer, truth, reward_score_fn=name) == pytest.approx(score)


@pytest.mark.parametrize("name", ["f1", "bleu", "rouge_l", "action_similarity"])
def test_a_score_of_text_without_a_ground_truth_is_an_error_and_not_zero(name):
    with pytest.raises(UserError, match=f"{name} has no ground truth"):
        compute_score("Paris", None, reward_score_fn=name)


def test_normalising_twice_is_normalising_once():
    for text in ("“Yes!” ", "'a' .", "Ｆｕｌｌ  width?"):
        assert normalise(normalise(text)) == normalise(text)


def test_a_mistyped_reward_suggests_the_right_one():
    with pytest.raises(UserError, match="Did you mean exact_match"):
        compute_score("", "", reward_score_fn="exact_mach")


def test_a_users_own_reward_is_found_in_a_file_or_module(tmp_path, monkeypatch):
    (tmp_path / "own_reward_module.py").write_text(
        "def my_reward(solution_str, ground_truth, **kwargs):\n    return len(solution_str) / ground_truth\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_reward_module:my_reward", "own_reward_module.py:my_reward"):
        assert compute_score("abc", 2, reward_score_fn=name) == 1.5


def test_something_that_cannot_be_called_is_no_reward():
    with pytest.raises(UserError, match="cannot be called"):
        compute_score("", "", reward_score_fn="math:pi")


@pytest.mark.parametrize(
    "head", ["def mine(solution_str, ground_truth):", "@process_reward\ndef mine(turn, state, history):"]
)
def test_a_reward_that_takes_no_keywords_is_told_before_it_is_asked(tmp_path, head):
    path = tmp_path / "own.py"
    path.write_text(f"from openmanus_rl.rewards import process_reward\n\n{head}\n    return 1.0\n")
    with pytest.raises(UserError, match=r"own\.py:mine\(.*\) takes no \*\*kwargs"):
        find_score_function(f"{path}:mine")
