"""Rewards as a run uses them: composed, asked turn by turn, asynchronous, allocated once; and what an error does."""

import asyncio

import pytest

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.config.schema import AlgorithmConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import RewardError, RewardManager, parse_reward, process_reward, score_episode
from openmanus_rl.rewards.score import compute_score

OWN = """
import asyncio

from openmanus_rl.rewards import process_reward

calls = []

def broken(solution_str, ground_truth, **kwargs):
    raise RuntimeError("the judge is asleep")

async def slow(solution_str, ground_truth, **kwargs):
    calls.append("asked")
    await asyncio.sleep(0.01)
    calls.append("answered")
    return {"score": 0.5, "wait": 0.01}

async def never(solution_str, ground_truth, **kwargs):
    await asyncio.Event().wait()

async def slow_and_broken(solution_str, ground_truth, **kwargs):
    await asyncio.sleep(0)
    raise RuntimeError("the judge hung up")

@process_reward
async def slow_turns(turn, state, history, **kwargs):
    await asyncio.sleep(0)
    return 0.25
"""


def episode() -> Episode:
    turns = [
        Turn(2, [5, 6], [0.0] * 2, [0] * 2, "Action: up", "up", None, "A", observation="a wall", reward=-0.1),
        Turn(6, [7], [0.0], [0], "hm", None, "no action", "A", observation="what?", reward=-0.05),
        Turn(9, [8], [0.0], [0], "Action: Paris", "Paris", None, "B", observation="yes", reward=1.0),
    ]
    task = Task("quiz", "quiz-17", ground_truth="paris", extra={"depth": 3})
    return Episode(task, 0, 0, 0, [Segment(list(range(10)), 2, turns)], StopReason.DONE, success=True)


def manager(max_episode_tokens: int = 100, **options: object) -> RewardManager:
    return RewardManager(
        AlgorithmConfig(**{f"reward_{name}": value for name, value in options.items()}), max_episode_tokens
    )


@pytest.fixture
def own(tmp_path):
    path = tmp_path / f"own_{tmp_path.name}.py"
    path.write_text(OWN)
    return path


def test_by_default_the_worlds_rewards_fall_on_their_turns_bit_for_bit():
    played = episode()
    assert manager()(played) == [[(3, -0.1), (6, -0.05), (9, 1.0)]]
    assert played.scores == {"score": played.episode_return}


def test_a_sum_has_each_part_with_its_weight_on_its_tokens_and_as_a_metric():
    played = episode()
    allocation = manager(score_fn="agentgym + 0.5*exact_match + -0.01*length")(played)
    assert allocation == [[(3, -0.1), (6, -0.05), (9, 1.0), (9, pytest.approx(0.5 - 0.04))]]
    assert played.scores == {
        "score": pytest.approx(0.85 + 0.5 - 0.04),
        "agentgym": pytest.approx(0.85),
        "exact_match": 1.0,
        "length": 4.0,
    }


def test_format_is_the_share_of_valid_turns_and_action_similarity_compares_all_actions():
    assert score_episode("format", episode()) == (pytest.approx(2 / 3), {})
    played = episode()
    played.task = Task("quiz", "quiz-17", ground_truth=["up", "down", "PARIS"])
    assert score_episode("action_similarity", played) == (pytest.approx(2 * 2 / 5), {})


def test_the_other_keys_of_a_part_keep_its_name(own):
    score, metrics = score_episode(f"agentgym + 2*{own}:slow", episode())
    assert score == pytest.approx(0.85 + 1.0)
    assert metrics == {"agentgym": pytest.approx(0.85), f"{own.stem}.slow": 0.5, f"{own.stem}.slow/wait": 0.01}


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("agentgym + ", "a term without a name"),
        ("much*agentgym", "'much' is not a weight"),
        ("agentgym + 0.1*agentgym", "names agentgym twice"),
        ("agentgym + 0.1*formta", "Did you mean format"),
        ("agentgym - 0.1*length", r"agentgym \+ -0\.1\*length"),
        ("agentgym - length", r"agentgym \+ -0\.1\*length"),
    ],
)
def test_a_mistaken_sum_says_what_is_wrong(expression, complaint):
    with pytest.raises(UserError, match=complaint):
        parse_reward(expression)


def test_functions_of_one_name_are_told_apart_by_their_modules_and_directories(tmp_path, monkeypatch):
    for place in ("pack/a.py", "pack/b.py", "one/reward.py", "two/reward.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("def compute_score(solution_str, ground_truth, **kwargs):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = "pack.a:compute_score + 0.5*pack.b:compute_score"
    files = "one/reward.py:compute_score + two/reward.py:compute_score"
    assert score_episode(modules, episode()) == (1.5, {"pack.a.compute_score": 1.0, "pack.b.compute_score": 1.0})
    assert score_episode(files, episode()) == (2.0, {"one.reward.compute_score": 1, "two.reward.compute_score": 1})
    with pytest.raises(UserError, match=r"one\.reward\.compute_score twice"):
        parse_reward("one/reward.py:compute_score + ./one/reward.py:compute_score")


def test_a_weight_may_have_an_exponent():
    assert [(term.weight, term.label) for term in parse_reward("1e+1*format+agentgym")] == [
        (10.0, "format"),
        (1.0, "agentgym"),
    ]


def test_a_process_reward_sees_each_turn_its_state_and_what_came_before():
    seen = []

    @process_reward
    def look(turn, state, history, **kwargs):
        seen.append((turn.text, state, [earlier.text for earlier in history], kwargs["last"], kwargs["task"].item_id))
        return {"score": float(state not in {earlier.state_key for earlier in history}), "said": len(turn.text)}

    score, metrics = score_episode(look, episode())
    assert seen == [
        ("Action: up", "A", [], False, "quiz-17"),
        ("hm", "A", ["Action: up"], False, "quiz-17"),
        ("Action: Paris", "B", ["Action: up", "hm"], True, "quiz-17"),
    ]
    assert (score, metrics) == (2.0, {"said": pytest.approx((10 + 2 + 13) / 3)})


def test_a_process_reward_falls_on_its_turns(own):
    assert manager(score_fn=f"{own}:slow_turns")(episode()) == [[(3, 0.25), (6, 0.25), (9, 0.25)]]
    joined = manager(score_fn=f"agentgym + 2*{own}:slow_turns")(episode())
    assert joined == [[(3, pytest.approx(0.4)), (6, pytest.approx(0.45)), (9, pytest.approx(1.5))]]


def test_asynchronous_scores_of_many_episodes_wait_together(own):
    rewards = manager(score_fn=f"{own}:slow")
    episodes = [episode() for _ in range(5)]

    async def judge_all():
        await asyncio.gather(*(rewards.judge(played) for played in episodes))

    asyncio.run(judge_all())
    assert all(played.scores == {"score": 0.5, "wait": 0.01} for played in episodes)
    calls = rewards.terms[0].function.__globals__["calls"]
    assert calls == ["asked"] * 5 + ["answered"] * 5


def test_an_episode_is_scored_once(own):
    rewards, played = manager(score_fn=f"{own}:slow"), episode()
    assert rewards(played) is rewards(played)
    asyncio.run(rewards.judge(episode()))
    assert len(rewards.terms[0].function.__globals__["calls"]) == 4


@pytest.mark.parametrize("name", ["broken", "slow_and_broken"])
def test_a_reward_that_raises_stops_the_run_and_shows_the_episode(own, name):
    with pytest.raises(RewardError, match=r"on task quiz-17 raised RuntimeError: the judge") as caught:
        asyncio.run(manager(score_fn=f"agentgym + {own}:{name}").judge(episode()))
    assert "The episode ended by done after 3 turns" in caught.value.hint
    assert "turn 2: Action: Paris -> yes (reward 1)" in caught.value.hint
    assert f"{own.name}:" in caught.value.hint


@pytest.mark.parametrize("name", ["broken", "slow_and_broken"])
def test_or_it_makes_the_episode_a_failed_one_and_never_a_zero(own, name):
    played = episode()
    asyncio.run(manager(score_fn=f"{own}:{name}", on_error="fail").judge(played))
    assert played.stop_reason is StopReason.REWARD_FAILURE
    assert not played.stop_reason.is_sample
    assert "raised RuntimeError: the judge" in played.failure
    assert played.scores == {}


def test_a_score_that_never_comes_is_waited_for_no_longer_than_the_config_says(own):
    rewards = manager(score_fn=f"agentgym + {own}:never", timeout=0.05)
    with pytest.raises(RewardError, match=r"never on task quiz-17 was not there after 0\.05 s") as caught:
        asyncio.run(rewards.judge(episode()))
    assert "The episode ended by done after 3 turns" in caught.value.hint
    played = episode()
    asyncio.run(manager(score_fn=f"{own}:never", timeout=0.05, on_error="fail").judge(played))
    assert played.stop_reason is StopReason.REWARD_FAILURE


def test_a_mistake_of_ours_is_not_taken_for_a_rewards_error():
    failed = episode()
    failed.stop_reason = StopReason.ENV_FAILURE
    with pytest.raises(ValueError, match="not a sample"):
        asyncio.run(manager(on_error="fail").judge(failed))


@pytest.mark.parametrize(
    ("limit", "buffer", "penalty"), [(100, 10, 0.0), (8, 4, 0.0), (6, 4, 0.5 * 0.5), (5, 2, 0.5 * 0.5), (4, 4, 0.5)]
)
def test_overlong_shaping_takes_a_little_more_with_every_token_near_the_limit(limit, buffer, penalty):
    played = episode()  # four sampled tokens
    allocation = manager(limit, overlong_buffer=buffer, overlong_penalty=0.5)(played)
    assert played.scores == {"score": pytest.approx(0.85 - penalty), "overlong": pytest.approx(-penalty)}
    assert sum(reward for _, reward in allocation[0]) == pytest.approx(0.85 - penalty)


def test_a_buffer_longer_than_an_episode_is_refused():
    with pytest.raises(UserError, match="reward_overlong_buffer=9 is longer"):
        manager(8, overlong_buffer=9)


@pytest.mark.parametrize("weight", ["nan", "inf"])
def test_a_weight_is_a_finite_number(weight):
    with pytest.raises(UserError, match="is not a weight"):
        parse_reward(f"agentgym + {weight}*format")


@pytest.mark.parametrize("name", ["format", "length", "action_similarity"])
def test_a_score_of_episodes_says_that_it_needs_one(name):
    with pytest.raises(UserError, match="without an episode"):
        compute_score("left", "left", reward_score_fn=name)
