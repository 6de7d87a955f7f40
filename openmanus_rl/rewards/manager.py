"""The reward manager: scores an episode once, notes the scores on it, and says which tokens they fell on."""

import asyncio
from dataclasses import replace

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.rewards import Allocation
from openmanus_rl.config.schema import AlgorithmConfig
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import llm_judge
from openmanus_rl.rewards.allocation import allocate_rewards
from openmanus_rl.rewards.checks import too_late
from openmanus_rl.rewards.composer import parse_reward
from openmanus_rl.rewards.llm_judge import LlmJudge
from openmanus_rl.rewards.overlong import overlong_penalty
from openmanus_rl.rewards.score import Judgement, judge, judge_async


class RewardManager:
    """Scores as `algorithm.reward_*` says."""

    def __init__(self, config: AlgorithmConfig, max_episode_tokens: int) -> None:
        judge = LlmJudge(config.reward_judge)
        self.terms = tuple(
            replace(term, function=judge.compute_score) if term.function is llm_judge.compute_score else term
            for term in parse_reward(config.reward_score_fn)
        )
        if judge.model is None and any(term.function == judge.compute_score for term in self.terms):
            raise UserError(
                "the reward llm_judge has no model to ask.",
                "Set algorithm.reward_judge.model, and algorithm.reward_judge.url to its endpoint.",
            )
        self.allocation = config.reward_allocation
        self.discount = config.reward_discount
        self.on_error = config.reward_on_error
        self.timeout = config.reward_timeout
        self.overlong_buffer = config.reward_overlong_buffer
        self.overlong_penalty = config.reward_overlong_penalty
        self.max_episode_tokens = max_episode_tokens
        if self.overlong_buffer > max_episode_tokens:
            raise UserError(
                f"algorithm.reward_overlong_buffer={self.overlong_buffer} is longer than an episode may be "
                f"(agent.max_episode_tokens={max_episode_tokens}).",
                "Make the buffer a part of the episode's tokens.",
            )

    async def judge(self, episode: Episode) -> None:
        """Score an episode as it ends; with `reward_on_error=fail` one that cannot be scored becomes a failed one."""
        try:
            self._note(episode, await self._judged(episode))
        except UserError as error:  # a RewardError, or a reward that has no token to fall on
            if self.on_error == "stop":
                raise
            episode.stop_reason, episode.failure = StopReason.REWARD_FAILURE, error.what

    def __call__(self, episode: Episode) -> Allocation:
        """Where the episode's score fell; one that has none yet, such as one read from a file, is scored."""
        if episode.token_rewards is None:
            return self._note(episode, judge(self.terms, episode))
        return episode.token_rewards

    async def _judged(self, episode: Episode) -> Judgement:
        try:
            async with asyncio.timeout(self.timeout):
                return await judge_async(self.terms, episode)
        except TimeoutError as error:
            names = " + ".join(term.name for term in self.terms)
            raise too_late(f"the reward {names} on task {episode.task.item_id}", self.timeout, episode) from error

    def _note(self, episode: Episode, judgement: Judgement) -> Allocation:
        if self.overlong_buffer:
            penalty = overlong_penalty(
                episode.sampled_tokens, self.max_episode_tokens, self.overlong_buffer, self.overlong_penalty
            )
            judgement = judgement.with_outcome("overlong", -penalty)
        episode.scores = judgement.scores
        episode.token_rewards = allocate_rewards(episode, judgement, self.allocation, self.discount)
        return episode.token_rewards
