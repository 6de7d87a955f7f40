"""A recorded episode on the live world: the same actions must lead to the same observations, rewards and states."""

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.envs.base import Environment, EpisodeOver


def replay_episode(episode: Episode, environment: Environment) -> list[str]:
    """Play the episode's actions; every difference in words, none if all is as recorded.

    A turn without an action never reached the world, so it is passed over. After a first difference in what happens
    the rest is compared all the same: it shows how far the two go apart.
    """
    differences: list[str] = []

    def compare(turn: int, what: str, recorded: object, live: object) -> None:
        if recorded != live:
            differences.append(f"turn {turn}: {what}\n  recorded: {recorded!r}\n  live:     {live!r}")

    first = environment.reset(episode.task).text
    if episode.first_observation is not None:
        compare(1, "what is seen before it", episode.first_observation, first)
    result = None
    for number, turn in enumerate(episode.turns, 1):
        if turn.state_key is not None:
            compare(number, "the state before it", turn.state_key, environment.state_key())
        if turn.action is None:
            continue
        try:
            result = environment.step(turn.action)
        except EpisodeOver:
            differences.append(f"turn {number}: recorded {turn.action!r}, but live the episode is over")
            return differences
        compare(number, f"what {turn.action!r} leads to", turn.observation, result.observation.text)
        compare(number, f"the reward of {turn.action!r}", turn.reward, result.reward)
    if result is not None and episode.stop_reason in (StopReason.DONE, StopReason.TRUNCATED):
        ended = StopReason.DONE if result.terminated else StopReason.TRUNCATED if result.truncated else None
        compare(len(episode.turns), "the end", episode.stop_reason.value, ended.value if ended else None)
        compare(len(episode.turns), "success", episode.success, result.success)
    return differences
