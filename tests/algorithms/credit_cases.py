"""Episodes as plain Python, so that each estimator can be written out a second time from its formula.

`play` draws random ones; `to_batch` lays them out as rows, in any order, with any padding.
"""

import random
from dataclasses import dataclass

import torch

from openmanus_rl.algorithms.credit import CreditBatch


@dataclass
class Token:
    """A response token: `turn` is -1 on observations, whose value and reward mean nothing.

    `state` numbers the state of the world in which its turn was taken; -1 if that is not known.
    """

    turn: int
    reward: float = 0.0
    value: float = 0.0
    state: int = -1


@dataclass
class Played:
    """An episode: its segments' response tokens, and how it ended."""

    name: int
    group: int
    segments: list[list[Token]]
    cut_short: bool = False
    final_value: float = 0.0
    greedy: float = 0.0
    """What the greedy episode on its task came to."""

    @property
    def sampled(self) -> list[Token]:
        return [token for segment in self.segments for token in segment if token.turn >= 0]

    @property
    def end_value(self) -> float:
        return self.final_value if self.cut_short else 0.0

    @property
    def total(self) -> float:
        return sum(token.reward for token in self.sampled)

    @property
    def turns(self) -> list[list[Token]]:
        """The sampled tokens of each turn that has any."""
        turns: dict[int, list[Token]] = {}
        for token in self.sampled:
            turns.setdefault(token.turn, []).append(token)
        return list(turns.values())

    def turn_returns(self, gamma: float) -> list[float]:
        """What was earned from each turn on, as a sum written out."""
        rewards = [sum(token.reward for token in turn) for turn in self.turns]
        return [sum(gamma ** (j - i) * rewards[j] for j in range(i, len(rewards))) for i in range(len(rewards))]


def play(seed: int, groups: int = 3, siblings: int = 3) -> list[Played]:
    """Episodes of one to three segments with turns of differing length, some of them without a sampled token."""
    dice = random.Random(seed)
    names = dice.sample(range(1000), groups * siblings)
    group_names = dice.sample(range(1000), groups)
    greedy = {group: dice.gauss(0, 1) for group in group_names}
    episodes = [_play_one(dice, name, group_names[place // siblings]) for place, name in enumerate(names)]
    for episode in episodes:
        episode.greedy = greedy[episode.group]
        for turn in episode.turns:
            state = dice.randint(-1, 3)
            for token in turn:
                token.state = state
    return episodes


def _play_one(dice: random.Random, name: int, group: int) -> Played:
    segments, turn = [], 0
    for _ in range(dice.randint(1, 3)):
        tokens = []
        for _ in range(dice.randint(0, 4)):
            sampled = dice.randint(0, 5)
            tokens += [Token(turn, dice.choice([0.0, dice.gauss(0, 1)]), dice.gauss(0, 1)) for _ in range(sampled)]
            tokens += [Token(-1, 0.0, dice.gauss(0, 1)) for _ in range(dice.randint(0, 3))]
            turn += 1
        segments.append(tokens)
    return Played(name, group, segments, dice.random() < 0.5, dice.gauss(0, 1))


def to_batch(
    episodes: list[Played], *, shuffle: int | None = None, padding: int = 0, critic: bool = True
) -> CreditBatch:
    """One row a segment, in the order given or shuffled by a seed, padded on the right by at least `padding`."""
    rows = [(episode, number) for episode in episodes for number in range(len(episode.segments))]
    if shuffle is not None:
        random.Random(shuffle).shuffle(rows)
    width = max(len(episode.segments[number]) for episode, number in rows) + padding
    blank = Token(-1)
    tokens = [(episode.segments[number] + [blank] * width)[:width] for episode, number in rows]
    turns = torch.tensor([[token.turn for token in row] for row in tokens])

    def column(attribute: str) -> torch.Tensor:
        return torch.tensor([[getattr(token, attribute) for token in row] for row in tokens], dtype=torch.float64)

    return CreditBatch(
        token_level_rewards_RT=column("reward"),
        response_mask_RT=turns >= 0,
        turn_index_RT=turns,
        group_index_R=torch.tensor([episode.group for episode, _ in rows]),
        episode_index_R=torch.tensor([episode.name for episode, _ in rows]),
        segment_index_R=torch.tensor([number for _, number in rows]),
        bootstrap_R=torch.tensor([episode.cut_short for episode, _ in rows]),
        values_RT=column("value") if critic else None,
        state_index_RT=torch.tensor([[token.state for token in row] for row in tokens]),
        greedy_return_R=torch.tensor([episode.greedy for episode, _ in rows], dtype=torch.float64),
        final_values_R=torch.tensor([episode.final_value for episode, _ in rows], dtype=torch.float64)
        if critic
        else None,
    )


def by_episode(batch: CreditBatch, column_RT: torch.Tensor) -> dict[int, list[float]]:
    """A column's values at sampled tokens, found again row by row: {episode: its stream}."""
    streams: dict[int, list[float]] = {int(name): [] for name in batch.episode_index_R}
    places = sorted(range(len(batch.segment_index_R)), key=lambda row: int(batch.segment_index_R[row]))
    for row in places:
        kept = [float(x) for x, keep in zip(column_RT[row], batch.response_mask_RT[row], strict=True) if keep]
        streams[int(batch.episode_index_R[row])] += kept
    return streams


def assert_streams_equal(actual: dict[int, list[float]], expected: dict[int, list[float]]) -> None:
    assert actual.keys() == expected.keys()
    for name, stream in expected.items():
        torch.testing.assert_close(
            torch.tensor(actual[name], dtype=torch.float64),
            torch.tensor(stream, dtype=torch.float64),
            rtol=1e-9,
            atol=1e-9,
        )


def recursive_gae(rewards: list[float], values: list[float], end_value: float, gamma: float, lam: float) -> list[float]:
    """GAE as its recursion is written in the paper, one step at a time from the end."""
    advantages, later, next_value = [], 0.0, end_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        later = reward + gamma * next_value - value + gamma * lam * later
        advantages.append(later)
        next_value = value
    return advantages[::-1]
