"""Overlong shaping: an episode that comes near the token limit loses reward, little by little.

Yu et al. 2025 (DAPO, soft overlong punishment). Without it, an episode that was going well and is cut at the limit is
judged as harshly as one that went wrong, and one just below the limit not at all.
"""


def overlong_penalty(tokens: int, limit: int, buffer: int, most: float) -> float:
    """0 up to `limit - buffer` sampled tokens, then rising in a straight line to `most` at `limit`."""
    over = tokens - (limit - buffer)
    return most * min(max(over / buffer, 0.0), 1.0)
