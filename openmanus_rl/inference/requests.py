"""What every engine refuses to sample."""

from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import SamplingParams


def check_request(prompt_ids: list[int], sampling: SamplingParams) -> None:
    """An error if there is nothing to continue, or no way to do it."""
    if not prompt_ids:
        raise UserError("there is nothing to continue: prompt_ids is empty", "Start with a token, such as BOS.")
    if sampling.max_tokens < 1 or sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
        raise UserError(
            f"cannot sample with {sampling}",
            "max_tokens >= 1, temperature >= 0, 0 < top_p <= 1, top_k >= 0 are needed.",
        )
