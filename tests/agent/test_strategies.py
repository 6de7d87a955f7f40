"""Rollout strategies: several ways tried in copies of the world, one taken."""

from typing import ClassVar

import pytest
from playing import request, setting
from toy_worlds import Counter

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.play import EpisodeRequest
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.agent.strategies import Plain, Strategy, best_of_n, find_strategy
from openmanus_rl.agent.strategies.best_of_n import BestOfN
from openmanus_rl.config.load import load_config
from openmanus_rl.envs.base import Environment, StepResult
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.checked_config import load_run_config


class Likes(Counter):
    """Takes any answer, pays for its letters, so that answers to one prompt differ in worth; can be copied."""

    steps: ClassVar[list[tuple[int, int]]] = []
    """Which world acted, and in which state."""

    def step(self, action: str) -> StepResult:
        self.steps.append((id(self), self.count))
        self.count += 1
        return StepResult(self._seen(), float(len(set(action))), self.count >= self.goal, False, True)


class Uncopied(Counter):
    snapshot = Environment.snapshot


def searched(strategy: Strategy, seed: int = 1, temperature: float = 1.5) -> EpisodeRequest:
    plain = request("up", seed=seed, temperature=temperature)
    return EpisodeRequest(plain.task, plain.group, plain.sample, plain.seed, plain.temperature, strategy=strategy)


def played(models, strategy, world=Likes, **more):
    with setting(models / "obedient", world, options={"goal": 4}, agent={"max_turns": 4}, **more) as here:
        (episode,) = here.agent.play([searched(strategy)])
        assert here.open_sessions() == 0, "no copy is left open"
        heard = [completion.token_ids for _, _, completion in here.engine.heard]
    return episode, heard


def test_every_answer_acts_in_a_world_of_its_own_and_one_of_them_is_taken(models):
    Likes.steps.clear()
    episode, heard = played(models, BestOfN(n=4))
    assert len(heard) == 4 * len(episode.turns)
    for index, turn in enumerate(episode.turns):
        assert list(turn.token_ids) in heard[4 * index : 4 * index + 4]
    assert len(set(Likes.steps)) == len(Likes.steps), "no world acted twice from one state: none was shared"
    assert len({world for world, _ in Likes.steps}) > len(episode.turns)
    assert episode.stop_reason in (StopReason.DONE, StopReason.MAX_TURNS)


def test_what_is_best_is_what_pays_most(models):
    with setting(models / "obedient", Likes, options={"goal": 100}, agent={"max_turns": 1}) as here:
        (episode,) = here.agent.play([searched(BestOfN(n=6))])
        answers = [here.renderer.decode(completion.token_ids) for _, _, completion in here.engine.heard]
        read = [here.agent.player.template.parse(answer).action for answer in answers]
    penalty = here.agent.player.config.invalid_penalty
    worths = [-penalty if action is None else float(len(set(action))) for action in read]
    assert len(set(worths)) > 1, "the test needs answers that differ in worth"
    assert episode.episode_return == max(worths)


def test_the_first_way_is_the_one_that_plain_play_takes(models):
    plain, heard = played(models, Plain())
    chosen, tried = played(models, BestOfN(n=2))
    assert heard[0] in tried[:2]
    assert not plain.chosen
    assert chosen.chosen


def test_copies_wait_for_room_however_many_episodes_there_are(models, monkeypatch):
    monkeypatch.setattr(best_of_n, "COPIES_AT_ONCE", 4)
    open_worlds, at_once = set(), []

    class Watched(Likes):
        def reset(self, task):
            open_worlds.add(self)
            at_once.append(len(open_worlds))
            return super().reset(task)

        def close(self):
            open_worlds.discard(self)

    strategy = BestOfN(n=3)
    with setting(models / "obedient", Watched, options={"goal": 3}, agent={"max_turns": 3}) as here:
        episodes = here.agent.play([searched(strategy, seed=seed) for seed in range(8)])
    assert all(episode.stop_reason.is_sample for episode in episodes)
    assert 8 < max(at_once) <= 8 + 4


def test_looking_ahead_leaves_the_world_as_it_was(models):
    episode, heard = played(models, BestOfN(n=2, lookahead=2))
    assert len(episode.turns) <= 4
    assert len(heard) > 2 * len(episode.turns)
    assert [turn.state_key for turn in episode.turns] == [
        f"at {sum(turn.action is not None for turn in episode.turns[:index])}" for index in range(len(episode.turns))
    ]


def test_a_chosen_episode_is_refused_where_it_would_train(models):
    episode, _ = played(models, BestOfN(n=2))
    with pytest.raises(ValueError, match="no sample of the policy"):
        episodes_to_rows([episode], 0)


def test_a_world_that_cannot_be_copied_fails_the_episode_and_says_why(models):
    with setting(models / "obedient", options={"goal": 4}) as here:
        (episode,) = here.agent.play([searched(BestOfN(n=2))])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ENV_FAILURE
    assert "cannot be snapshotted" in episode.failure


class Careful(Strategy):
    """A user's own: gives up after a turn."""

    turns: int = 1

    async def play(self, line):
        for _ in range(self.turns):
            await line.take_turn()
        return line


def test_options_are_typed_and_a_strategy_of_ones_own_is_found():
    assert find_strategy("best_of_n", {"n": 8}).n == 8
    assert find_strategy("test_strategies:Careful", {"turns": 2}).turns == 2
    with pytest.raises(UserError, match=r"rollout\.validation_strategy_options\.m"):
        find_strategy("best_of_n", {"m": 8})
    with pytest.raises(UserError, match="is not a rollout strategy"):
        find_strategy("test_strategies:Likes", {})


def test_a_config_whose_world_cannot_be_copied_is_refused():
    words = ["rollout.validation_strategy=best_of_n"]
    assert load_config(None, words).rollout.validation_strategy == "best_of_n"
    load_run_config(None, ["env.name=maze", *words])
    with pytest.raises(UserError, match="cannot be copied"):
        load_run_config(None, ["env.name=test_strategies:Uncopied", *words])
