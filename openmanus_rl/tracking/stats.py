"""Success comes with an interval and the number of episodes."""

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Interval:
    """A success rate, where it probably lies, and how many episodes say so."""

    rate: float
    low: float
    high: float
    n: int

    def is_above(self, other: "Interval") -> bool:
        """Whether the two intervals are apart, this one the higher: a difference that is more than noise."""
        return self.low > other.high

    def to_dict(self) -> dict[str, float | int]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{100 * self.rate:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}] n={self.n}"


@dataclass(frozen=True)
class Difference:
    """How much higher one success rate is than another, and where that probably lies."""

    rate: float
    low: float
    high: float

    @property
    def is_outside_noise(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, float | bool]:
        return {**asdict(self), "outside_noise": self.is_outside_noise}


def difference(one: Interval, other: Interval) -> Difference:
    """`one` minus `other` with Newcombe's interval (1998), made from the two Wilson intervals.

    Sharper than asking whether the intervals are apart: two that overlap a little can still differ by more than noise.
    """
    rate = one.rate - other.rate
    below = math.hypot(one.rate - one.low, other.high - other.rate)
    above = math.hypot(one.high - one.rate, other.rate - other.low)
    return Difference(rate, rate - below, rate + above)


def wilson(successes: int, n: int, z: float = 1.96) -> Interval:
    """Wilson's score interval (1927), 95 % by default; with no episodes it is the whole range.

    Unlike the normal approximation it never leaves [0, 1] and does not shrink to a point at 0 or `n` successes.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} episodes")
    if n == 0:
        return Interval(rate=0.0, low=0.0, high=1.0, n=0)
    rate = successes / n
    shrink = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(rate=rate, low=low, high=high, n=n)
