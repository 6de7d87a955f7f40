"""One typed tree: presets, overrides, and errors that say what to do."""

from pathlib import Path

import pytest
import yaml

from openmanus_rl.config.effect import check_effect, check_used
from openmanus_rl.config.load import config_from_dict, config_to_yaml, given_keys, load_config, override_keys
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_command_line_wins_over_the_preset_and_the_preset_over_defaults(tmp_path):
    preset = write(tmp_path / "p.yaml", "trainer: {steps: 7, seed: 3}\n")
    config = load_config(preset, ["trainer.seed=9", "actor.lr=1e-5"])
    assert (config.trainer.steps, config.trainer.seed, config.actor.lr) == (7, 9, 1e-5)
    assert config.rollout.group_size == RunConfig().rollout.group_size


def test_a_mistyped_key_suggests_the_right_one():
    with pytest.raises(UserError, match=r"algorithm\.estimtor is not a key\. Did you mean algorithm\.estimator\?"):
        load_config(None, ["algorithm.estimtor=grpo"])


def test_a_key_in_the_wrong_section_is_found_in_the_right_one():
    with pytest.raises(UserError, match=r"Did you mean rollout\.group_size\?"):
        load_config(None, ["trainer.group_size=4"])


def test_a_value_of_the_wrong_type_names_its_key_and_value():
    with pytest.raises(UserError, match=r"trainer\.steps='many'"):
        load_config(None, ["trainer.steps=many"])


@pytest.mark.parametrize("text", ["7", "1e5", "true", "nan", "a: b", "[1]", "-3"])
def test_a_field_of_text_takes_any_text_as_it_is(text):
    assert load_config(None, [f"trainer.name_suffix={text}"]).trainer.name_suffix == text


def test_an_optional_text_can_be_unset_and_numbers_stay_numbers(tmp_path):
    preset = write(tmp_path / "p.yaml", "trainer: {name: mine}\n")
    config = load_config(preset, ["trainer.name=null", "actor.lr=1e-5", "env.options.word=nan"])
    assert (config.trainer.name, config.actor.lr, config.env.options) == (None, 1e-5, {"word": "nan"})


@pytest.mark.parametrize("word", ["trainer.steps", "=3", "--steps"])
def test_a_word_that_is_no_override_says_how_one_looks(word):
    with pytest.raises(UserError, match="key=value"):
        load_config(None, [word])


def test_a_missing_preset_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_a_directory_is_no_preset(tmp_path):
    with pytest.raises(UserError, match="there is no preset at"):
        load_config(tmp_path)


def test_a_preset_that_is_not_a_mapping_is_refused(tmp_path):
    with pytest.raises(UserError, match="keys and values"):
        load_config(write(tmp_path / "p.yaml", "- a\n- b\n"))


def test_the_printed_config_loads_to_the_same_config():
    config = load_config(None, ["env.options.size=5", "algorithm.kl.where=loss"])
    assert config_from_dict(yaml.safe_load(config_to_yaml(config))) == config


def test_given_keys_are_those_of_the_preset_and_the_command_line(tmp_path):
    preset = write(tmp_path / "p.yaml", "trainer: {steps: 7}\n")
    assert set(given_keys(load_config(preset, ["env.name=wordle"]))) == {"trainer.steps", "env.name"}
    assert override_keys(["env.name=wordle", "trainer.seed=1"]) == ["env.name", "trainer.seed"]


@pytest.mark.parametrize(
    ("overrides", "key", "requires"),
    [
        (["critic.lr=1e-3"], "critic.lr", {"group"}),
        (["algorithm.bootstrap_cut_episodes=false"], "algorithm.bootstrap_cut_episodes", {"group"}),
        (["algorithm.drop_zero_variance_groups=false"], "algorithm.drop_zero_variance_groups", {"critic"}),
        (["algorithm.kl.coefficient=0.1"], "algorithm.kl.coefficient", {"group"}),
        (["algorithm.kl.where=loss", "algorithm.kl.target=0.1"], "algorithm.kl.target", {"group"}),
        (["algorithm.kl.where=reward", "algorithm.kl.horizon=10"], "algorithm.kl.horizon", {"group"}),
        (["algorithm.kl.where=reward", "algorithm.kl.kind=k3+"], "algorithm.kl.kind", {"group"}),
        (["model.path=some/dir", "model.tiny.layers=3"], "model.tiny.layers", {"group"}),
        (["warm_start.enabled=false", "warm_start.lr=1e-3"], "warm_start.lr", {"group"}),
        (["env.urls=[http://127.0.0.1:1]", "env.num_servers=2"], "env.num_servers", {"group"}),
        (["algorithm.correction.kind=token"], "algorithm.correction.kind", {"group"}),
        (["actor.proximal=recompute", "algorithm.correction.cap=3"], "algorithm.correction.cap", {"group"}),
        (["algorithm.reward_discount=0.5"], "algorithm.reward_discount", {"critic"}),
        (["algorithm.reward_overlong_penalty=0.5"], "algorithm.reward_overlong_penalty", {"group"}),
        (["rollout.refills=1"], "rollout.refills", {"critic"}),
    ],
)
def test_a_key_that_the_mode_ignores_is_an_error_that_says_why(overrides, key, requires):
    config = load_config(None, overrides)
    with pytest.raises(UserError, match=rf"{key} has no effect: .*\n.*Remove it, or"):
        check_effect(config, override_keys(overrides), requires)


@pytest.mark.parametrize(
    ("overrides", "key", "credit"),
    [
        (["algorithm.reward_allocation=last_token"], "algorithm.reward_allocation", "episode"),
        (["algorithm.drop_zero_variance_groups=false"], "algorithm.drop_zero_variance_groups", "token"),
        (["rollout.refills=1"], "rollout.refills", "token"),
        (["algorithm.drop_zero_variance_groups=false", "rollout.refills=1"], "rollout.refills", "episode"),
    ],
)
def test_a_key_that_the_estimators_credit_ignores_is_an_error(overrides, key, credit):
    with pytest.raises(UserError, match=f"{key} has no effect"):
        check_effect(load_config(None, overrides), override_keys(overrides), {"group"}, credit)


@pytest.mark.parametrize(
    ("overrides", "credit"),
    [
        (["algorithm.reward_allocation=discounted", "algorithm.reward_discount=0.5"], "token"),
        (["algorithm.reward_overlong_buffer=8", "algorithm.reward_overlong_penalty=0.5"], "episode"),
        (["actor.proximal=recompute", "algorithm.correction.kind=token", "algorithm.correction.cap=3"], "episode"),
        (["rollout.refills=1"], "episode"),
    ],
)
def test_a_key_that_has_an_effect_is_taken(overrides, credit):
    check_effect(load_config(None, overrides), override_keys(overrides), {"group"}, credit)


def test_gspo_wants_the_mean_of_its_paper():
    from openmanus_rl.trainer.checked_config import load_checked_config

    with pytest.raises(UserError, match=r"gspo is half an algorithm.*\n.*algorithm.aggregation=seq-mean-token-mean"):
        load_checked_config(None, ["algorithm.loss=gspo"])
    load_checked_config(None, ["algorithm.loss=gspo", "algorithm.aggregation=seq-mean-token-mean"])


def test_dr_grpo_wants_its_loss():
    from openmanus_rl.trainer.checked_config import load_checked_config

    with pytest.raises(UserError, match=r"Set algorithm\.aggregation=seq-mean-token-sum-norm"):
        load_checked_config(None, ["algorithm.estimator=drgrpo"])
    load_checked_config(None, ["algorithm.estimator=drgrpo", "algorithm.aggregation=seq-mean-token-sum-norm"])


@pytest.mark.parametrize(
    "words", [["gigpo"], ["process"], ["grpo", "algorithm.drop_zero_variance_groups=false"]], ids=lambda words: words[0]
)
def test_a_kl_that_would_be_all_there_is_to_divide_by_is_not_put_into_the_reward(words):
    from openmanus_rl.trainer.checked_config import load_checked_config

    words = [f"algorithm.estimator={words[0]}", *words[1:], "algorithm.kl.where=reward"]
    with pytest.raises(UserError, match=r"divides by a deviation") as caught:
        load_checked_config(None, words)
    assert "algorithm.options.normalise_std=false" in caught.value.hint
    load_checked_config(None, [*words, "algorithm.options.normalise_std=false"])
    load_checked_config(None, ["algorithm.kl.where=reward"])


@pytest.mark.parametrize("preset", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_whole_run(preset):
    from openmanus_rl.trainer.checked_config import load_checked_config

    load_checked_config(preset, [])
    assert len(preset.read_text().splitlines()) <= 40


@pytest.mark.parametrize("preset", EXAMPLES, ids=lambda path: path.stem)
def test_a_printed_config_is_a_preset(preset, tmp_path):
    from openmanus_rl.trainer.checked_config import load_checked_config

    config = load_checked_config(preset, [])
    assert load_checked_config(write(tmp_path / "printed.yaml", config_to_yaml(config)), []) == config


def test_a_key_of_a_preset_that_its_mode_ignores_is_an_error(tmp_path):
    from openmanus_rl.trainer.checked_config import load_checked_config

    with pytest.raises(UserError, match=r"critic\.lr has no effect"):
        load_checked_config(write(tmp_path / "p.yaml", "critic: {lr: 0.5}\n"), [])


@pytest.mark.parametrize(
    ("verb", "key", "is_read"),
    [
        ("sft", "warm_start.lr", True),
        ("sft", "env.options.size", True),
        ("sft", "rollout.group_size", False),
        ("sft", "warm_start.enabled", False),
        ("sft --data", "data.train_tasks", False),
        ("eval", "rollout.validation_temperature", True),
        ("eval", "rollout.temperature", False),
        ("eval --policy", "agent.max_turns", False),
    ],
)
def test_a_verb_refuses_the_keys_it_does_not_read(verb, key, is_read):
    if is_read:
        check_used([key], verb)
    else:
        with pytest.raises(UserError, match=rf"{key} has no effect on {verb}\."):
            check_used([key], verb)


def test_an_override_of_the_mode_does_not_blame_the_presets_other_keys():
    from openmanus_rl.trainer.checked_config import load_checked_config

    preset = next(path for path in EXAMPLES if path.stem == "maze_ppo")
    assert load_checked_config(preset, ["model.path=some/dir"]).model.path == "some/dir"


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["algorithm.options.lambda=0.9"], "algorithm.options.lambda is not an option"),
        (["algorithm.estimator=grop"], "Did you mean grpo"),
        (["rollout.group_size=1"], "needs at least 2"),
        (["rollout.temperature=0"], "explores nothing"),
        (["algorithm.reward_score_fn=nothing"], "reward score function"),
        (["env.options.colour=red"], "colour"),
        (["agent.template=prose"], "action template"),
    ],
)
def test_a_config_that_cannot_train_is_refused_before_anything_starts(overrides, complaint):
    from openmanus_rl.trainer.checked_config import load_checked_config

    preset = next(path for path in EXAMPLES if path.stem == "maze_grpo")
    with pytest.raises(UserError, match=complaint):
        load_checked_config(preset, overrides)


def test_an_estimator_that_compares_states_wants_a_world_that_tells_them():
    from openmanus_rl.trainer.checked_config import load_checked_config

    preset = next(path for path in EXAMPLES if path.stem == "sciworld_grpo")
    with pytest.raises(UserError, match="sciworld tells none"):
        load_checked_config(preset, ["algorithm.estimator=gigpo"])


def test_a_horizon_is_a_number_or_a_schedule_by_step():
    assert load_config(None).agent.max_turns_at(7) == 16
    agent = load_config(None, ["agent.max_turns={0: 5, 100: 10, 200: 15}"]).agent
    assert [agent.max_turns_at(step) for step in (0, 1, 99, 100, 199, 1000)] == [5, 5, 5, 10, 10, 15]
    assert agent.max_turns_at() == 15
    assert load_config(None, ["agent.max_turns.1=5", "agent.max_turns.9=6"]).agent.max_turns == {1: 5, 9: 6}


@pytest.mark.parametrize("value", ["0", "{}", "{10: 5}", "{0: 0}", "{-1: 5}", "soon"])
def test_a_horizon_that_is_neither_is_refused(value):
    with pytest.raises(UserError, match="max_turns"):
        load_config(None, [f"agent.max_turns={value}"])
