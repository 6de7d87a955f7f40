"""An episode's score: what score functions say of it, checked, each for the whole episode or for every turn.

A score that is no finite number, and a function that raises, are a `RewardError` with the episode shown: never 0.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openmanus_rl.agent.episode import Episode
from openmanus_rl.rewards import agentgym
from openmanus_rl.rewards.checks import checked_score, raised
from openmanus_rl.rewards.composer import Term, parse_reward
from openmanus_rl.rewards.process import ProcessReward
from openmanus_rl.rewards.registry import Score, ScoreFunction, find_score_function


@dataclass(frozen=True)
class Judgement:
    """What an episode earned."""

    turns: list[float]
    """On each turn: the world's rewards and process rewards, weighted."""
    outcome: float
    """For the whole episode, beside that."""
    scores: dict[str, float] = field(default_factory=dict)
    """`score`, the sum; what else dicts said; in a sum of several functions also each one's own score."""

    @property
    def score(self) -> float:
        return self.scores["score"]

    def with_outcome(self, name: str, value: float) -> "Judgement":
        """The same with one more part of the outcome, which is a metric too."""
        scores = {**self.scores, "score": self.score + value, name: value}
        return Judgement(self.turns, self.outcome + value, scores)


def compute_score(
    solution_str: str, ground_truth: Any, *, reward_score_fn: str = "agentgym", **kwargs: Any
) -> Score | Awaitable[Score]:
    """Call the score function named `reward_score_fn`; what an asynchronous one gives is to be awaited."""
    return find_score_function(reward_score_fn)(solution_str, ground_truth, **kwargs)


def score_episode(reward_score_fn: str | ScoreFunction, episode: Episode) -> tuple[float, dict[str, float]]:
    """The episode's score, and the other numbers that were said of it, which become metrics."""
    judgement = judge(as_terms(reward_score_fn), episode)
    others = {name: value for name, value in judgement.scores.items() if name != "score"}
    return judgement.score, others


def as_terms(reward_score_fn: str | ScoreFunction) -> tuple[Term, ...]:
    """The terms of an expression, or a function alone."""
    if isinstance(reward_score_fn, str):
        return parse_reward(reward_score_fn)
    named = getattr(reward_score_fn, "function", reward_score_fn)
    module, name = getattr(named, "__module__", "?"), getattr(named, "__qualname__", "?")
    return (Term(f"{module}:{name}", reward_score_fn),)


def judge(terms: Sequence[Term], episode: Episode) -> Judgement:
    """Ask every function; those that are asynchronous together, in an event loop of their own."""
    answers = _ask_all(terms, episode)
    if any(inspect.isawaitable(raw) for answer in answers for raw in answer.raw):
        asyncio.run(_await_all(answers, episode))
    return _combined(answers, episode)


async def judge_async(terms: Sequence[Term], episode: Episode) -> Judgement:
    """As `judge`, within an event loop that goes on while asynchronous functions wait."""
    answers = _ask_all(terms, episode)
    await _await_all(answers, episode)
    return _combined(answers, episode)


@dataclass
class _Answer:
    """What one function said: once, or once a turn."""

    term: Term
    where: str
    raw: list[Any]
    """Scores, or what will be one when it is awaited."""
    by_turn: bool


def _ask_all(terms: Sequence[Term], episode: Episode) -> list[_Answer]:
    """Where one raises, asynchronous ones that were asked before it are told that nobody waits any more."""
    answers: list[_Answer] = []
    try:
        for term in terms:
            answers.append(_ask(term, episode))
    except Exception:
        for raw in (raw for answer in answers for raw in answer.raw if inspect.iscoroutine(raw)):
            raw.close()
        raise
    return answers


def _ask(term: Term, episode: Episode) -> _Answer:
    if not episode.stop_reason.is_sample:
        raise ValueError(f"a failed episode is not a sample: {episode.task.item_id} ended by {episode.stop_reason}")
    where = f"the reward {term.name} on task {episode.task.item_id}"
    if isinstance(term.function, ProcessReward):
        raw = [_call(term, where, episode, *_about_turn(episode, index)) for index in range(len(episode.turns))]
        return _Answer(term, where, raw, by_turn=True)
    return _Answer(term, where, [_call(term, where, episode, *_about_episode(episode))], by_turn=False)


def _about_episode(episode: Episode) -> tuple[list[Any], dict[str, Any]]:
    last = episode.turns[-1] if episode.turns else None
    return [last.text if last else "", episode.task.ground_truth], {
        "action": last.action if last else None,
        "episode_return": episode.episode_return,
        "success": episode.success,
        "data_source": episode.task.env,
        "extra_info": dict(episode.task.extra),
        "episode": episode,
    }


def _about_turn(episode: Episode, index: int) -> tuple[list[Any], dict[str, Any]]:
    turns = episode.turns
    return [turns[index], turns[index].state_key, turns[:index]], {
        "task": episode.task,
        "episode": episode,
        "success": episode.success,
        "last": index == len(turns) - 1,
    }


def _call(term: Term, where: str, episode: Episode, arguments: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return term.function(*arguments, **kwargs)
    except Exception as error:
        raise raised(error, where, episode) from error


async def _await_all(answers: Sequence[_Answer], episode: Episode) -> None:
    await asyncio.gather(
        *(
            _await(answer, index, episode)
            for answer in answers
            for index, raw in enumerate(answer.raw)
            if inspect.isawaitable(raw)
        )
    )


async def _await(answer: _Answer, index: int, episode: Episode) -> None:
    try:
        answer.raw[index] = await answer.raw[index]
    except Exception as error:
        raise raised(error, answer.where, episode) from error


def _combined(answers: Sequence[_Answer], episode: Episode) -> Judgement:
    turns, outcome = [0.0] * len(episode.turns), 0.0
    scores: dict[str, float] = {}
    for answer in answers:
        checked = [checked_score(raw, answer.where, episode) for raw in answer.raw]
        own, others = sum(score for score, _ in checked), _means([other for _, other in checked])
        weight = answer.term.weight
        if answer.by_turn:
            turns = [total + weight * score for total, (score, _) in zip(turns, checked, strict=True)]
        elif answer.term.function is agentgym.compute_score:
            turns = [total + weight * turn.reward for total, turn in zip(turns, episode.turns, strict=True)]
        else:
            outcome += weight * own
        if len(answers) == 1:
            scores |= others
        else:
            scores[answer.term.label] = own
            scores |= {f"{answer.term.label}/{name}": value for name, value in others.items()}
    return Judgement(turns, outcome, {"score": sum(turns) + outcome, **scores})


def _means(others: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each name over the turns that said it; an outcome is said once."""
    names = {name: None for other in others for name in other}
    said = {name: [other[name] for other in others if name in other] for name in names}
    return {name: sum(values) / len(values) for name, values in said.items()}
