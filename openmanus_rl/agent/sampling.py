"""One answer of the model: asked of the engine, cut where it is complete, and what is thereby known of it."""

import time

from openmanus_rl.agent.episode import Segment, Turn
from openmanus_rl.agent.player import Player
from openmanus_rl.agent.templates import ActionTemplate
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, EngineLost, FinishReason, SamplingParams
from openmanus_rl.models.plain_chat import Renderer


class EngineFailure(Exception):
    """The engine raised while it sampled. The episode is not a sample."""


async def sample(
    player: Player,
    template: ActionTemplate,
    segment: Segment,
    sampling: SamplingParams,
    *,
    seed: int,
    session: str,
    deadline: float,
) -> tuple[Turn, FinishReason]:
    """Sample a continuation of the segment and append its tokens; the caller notes the turn where it belongs."""
    began = time.monotonic()
    try:
        completion = await player.engine.generate(
            list(segment.ids), sampling, seed=seed, session=session, deadline=deadline
        )
    except (UserError, EngineLost):
        raise  # no other try of this episode would fare better
    except Exception as error:
        raise EngineFailure(f"{type(error).__name__}: {error}") from error
    completion, text = _complete(player.renderer, template, completion)
    turn = append(segment, completion, text, time.monotonic() - began)
    return turn, completion.finish_reason


def append(segment: Segment, completion: Completion, text: str, seconds: float) -> Turn:
    """Put what was sampled at the segment's end; the turn that it is, of which nothing is read yet."""
    turn = Turn(
        start=len(segment.ids),
        token_ids=completion.token_ids,
        log_probs=completion.log_probs,
        versions=completion.versions,
        text=text,
        action=None,
        invalid_reason=None,
        state_key=None,
        finish=str(completion.finish_reason),
        generate_seconds=seconds,
    )
    segment.ids.extend(completion.token_ids)
    return turn


def read(renderer: Renderer, template: ActionTemplate, turn: Turn) -> None:
    """Note what the template finds in the answer, and the tokens that it stands on."""
    parsed = template.read(turn.text)
    turn.action, turn.invalid_reason, turn.kind = parsed.action, parsed.invalid_reason, parsed.kind
    if parsed.span is not None:
        turn.action_span = renderer.token_span(turn.token_ids, turn.text, *parsed.span)


def _complete(renderer: Renderer, template: ActionTemplate, completion: Completion) -> tuple[Completion, str]:
    """The completion up to where the template says that an answer is complete, and its text.

    Whether it ends at a token depends only on the tokens up to it, so what is kept is a sample of the policy that stops
    there, with the log-probs it has. For the same reason an end of turn that was sampled behind it goes too.
    """
    text = renderer.decode(completion.token_ids)
    interrupted = completion.finish_reason in (FinishReason.ABORTED, FinishReason.DEADLINE)
    end = None if interrupted else template.answer_end(text)
    if end is None:
        return completion, text
    _, count = renderer.token_span(completion.token_ids, text, 0, end)
    if count == len(completion.token_ids):
        return completion, text
    kept = Completion(
        completion.token_ids[:count], completion.log_probs[:count], completion.versions[:count], FinishReason.STOP
    )
    return kept, renderer.decode(kept.token_ids)
