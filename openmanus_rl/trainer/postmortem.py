"""The post-mortem of a collapse: what was seen, what was done, and the same tasks before and after, for a person."""

from collections.abc import Sequence
from pathlib import Path

from openmanus_rl.agent.episode import Episode
from openmanus_rl.files import write_text
from openmanus_rl.trainer.guard import Collapse

TASKS = 8
"""Held-out tasks that the collapsed policy plays for it."""
_SHOWN_TASKS = 2
_LONGEST_TEXT = 300


def write_postmortem(
    path: Path,
    collapse: Collapse,
    done: str,
    measured_at: int | None,
    before: Sequence[Episode],
    after: Sequence[Episode],
) -> None:
    """`before` are validation episodes of step `measured_at`; `after` the same tasks with the collapsed policy."""
    parts = [
        f"# Collapse at step {collapse.step}",
        f"**Cause:** {collapse.cause}.",
        f"**Done:** {done}",
        f"**To mend it:** {collapse.remedy}",
        "## What left its band",
        _table(
            ["metric", "before (median)", "at the collapse", "what it means"],
            [[f"`{r.signal.metric}`", _number(r.usual), _number(r.value), r.signal.cause] for r in collapse.readings],
        ),
        "## The last steps",
        _last_steps(collapse),
        "## The same tasks before and after",
        _comparison(collapse.step, measured_at, before, after),
    ]
    write_text(path, "\n\n".join(parts) + "\n")


def _last_steps(collapse: Collapse) -> str:
    metrics = sorted({name for step in collapse.past for name in step})
    first = collapse.step - len(collapse.past) + 1
    rows = [
        [str(first + index), *(_number(step.get(name)) for name in metrics)] for index, step in enumerate(collapse.past)
    ]
    return _table(["step", *(f"`{name}`" for name in metrics)], rows)


def _comparison(step: int, measured_at: int | None, before: Sequence[Episode], after: Sequence[Episode]) -> str:
    earlier = {episode.task.item_id: episode for episode in before}
    pairs = [(earlier[episode.task.item_id], episode) for episode in after if episode.task.item_id in earlier]
    succeeded = [sum(pair[side].success for pair in pairs) for side in (0, 1)]
    # First those that were solved and are not any more, then those that did worse.
    telling = sorted(pairs, key=lambda pair: (pair[1].success - pair[0].success, _gain(pair)))[:_SHOWN_TASKS]
    lines = [
        f"Of {len(pairs)} held-out tasks {succeeded[0]} succeeded at step {measured_at}, and {succeeded[1]} with the "
        f"weights after step {step}."
    ]
    for good, bad in telling:
        lines.append(f"### Task {good.task.item_id}")
        lines.append(f"At step {measured_at}: {_outcome(good)}\n\n{_dialogue(good)}")
        lines.append(f"After step {step}: {_outcome(bad)}\n\n{_dialogue(bad)}")
    return "\n\n".join(lines)


def _gain(pair: tuple[Episode, Episode]) -> float:
    return pair[1].episode_return - pair[0].episode_return


def _outcome(episode: Episode) -> str:
    return f"{'success' if episode.success else 'failure'}, return {episode.episode_return:.3g}, {episode.stop_reason}."


def _dialogue(episode: Episode) -> str:
    """What was said and seen, as an indented block: it may hold any text."""
    lines = []
    for number, turn in enumerate(episode.turns, 1):
        fault = f"  ({turn.invalid_reason})" if turn.invalid_reason else ""
        lines.append(f"{number}. says: {_short(turn.text)}{fault}")
        lines.append(f"   sees: {_short(turn.observation or '')}")
    return "\n".join(f"    {line}" for line in lines)


def _short(text: str) -> str:
    line = " ⏎ ".join(text.split("\n"))
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]} …"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])
