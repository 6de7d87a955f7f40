"""Episodes in a terminal: as a list, one with its tokens in colour, two side by side."""

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from openmanus_rl.viewer.episodes import Row
from openmanus_rl.viewer.filters import OUTCOMES
from openmanus_rl.viewer.hostile import on_one_line, visible

COLOURINGS = ("advantage", "log_prob", "gap", "mask")
_ABOVE, _BELOW, _SURPRISE, _SAMPLED = (40, 90, 190), (190, 95, 20), (110, 70, 160), (10, 110, 120)
_UNKNOWN = "dim underline"
_LONGEST = 2000
"""Characters of a message that are shown."""


def episode_table(rows: Sequence[Row]) -> Table:
    """A line for each episode; the first column is what the other verbs call it."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("episode", no_wrap=True)
    for name in ("task", "outcome", "ended by"):
        table.add_column(name)
    for name in ("return", "turns", "tokens"):
        table.add_column(name, justify="right")
    for row in rows:
        entry = row.entry
        table.add_row(
            Text(episode_name(row), "cyan"),
            Text(on_one_line(entry.item_id, 60)),
            outcome(row),
            on_one_line(entry.stop_reason, 30),
            f"{entry.episode_return:+.3g}",
            str(entry.turns),
            str(entry.tokens),
        )
    return table


def episode_name(row: Row) -> str:
    return f"{row.file.removesuffix('.jsonl')}:{row.entry.number}"


def outcome(row: Row) -> Text:
    """In words and in a colour that most eyes tell apart."""
    styles = {"success": "blue", "miss": "yellow", "failed": "dim"}
    name = next(name for name, holds in OUTCOMES.items() if holds(row))
    return Text(name, styles[name])


def one_episode(row: Row, record: dict[str, Any], colouring: str) -> RenderableType:
    """The turns as a conversation, every sampled token in the colour of what is known of it."""
    heading = Text.assemble(
        (on_one_line(row.entry.item_id, 80), "bold"),
        "  ",
        outcome(row),
        f"  return {row.entry.episode_return:+.4g}, {row.entry.turns} turns, {row.entry.tokens} sampled tokens, "
        f"step {row.step}, group {row.entry.group}, sample {row.entry.sample}, ended by ",
        on_one_line(row.entry.stop_reason, 30),
    )
    parts: list[RenderableType] = [heading, _legend(record, colouring)]
    if record.get("failure"):
        parts.append(Text(_cut(record["failure"]), "yellow"))
    strongest = _strongest(record, colouring)
    for index, segment in enumerate(record["segments"]):
        prompt = segment["pieces"][: segment["prompt_length"]] if segment.get("pieces") else [record["task"]["prompt"]]
        parts.append(Panel(Text(_cut("".join(prompt)), "dim"), title=f"prompt {index + 1}", title_align="left"))
        for number, turn in enumerate(record["turns"], 1):
            if turn["segment"] == index:
                parts += _turn(number, turn, segment, colouring, strongest)
        if segment.get("summary"):
            parts.append(_said("summary", segment["summary"], segment, colouring, strongest))
    return Group(*parts)


def token_table(record: dict[str, Any]) -> Table:
    """Every sampled token with its numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("turn", "at", "id", "token", "engine", "trainer", "advantage", "reward", "version"):
        table.add_column(name, justify="left" if name == "token" else "right")
    for number, turn in enumerate(record["turns"], 1):
        segment = record["segments"][turn["segment"]]
        for at in range(turn["start"], turn["end"]):
            values = [_at(segment, name, at) for name in ("log_probs", "trainer_log_probs", "advantages", "rewards")]
            table.add_row(
                str(number),
                str(at),
                str(segment["ids"][at]),
                Text(on_one_line(_piece(segment, at), 30)),
                *(("–" if value is None else f"{value:.4f}") for value in values),
                str(segment["versions"][at]),
            )
    return table


def difference(one: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> Iterator[RenderableType]:
    """Two episodes turn by turn, and where they part."""
    if one["item_id"] != other["item_id"]:
        yield Text(f"not the same task: {on_one_line(one['item_id'])} and {on_one_line(other['item_id'])}", "yellow")
    table = Table(header_style="dim", show_lines=True)
    table.add_column("turn", justify="right")
    for name in names:
        table.add_column(Text(name, "cyan"), ratio=1)
    parted = None
    for number, (first, second) in enumerate(zip_longest(one["turns"], other["turns"]), 1):
        is_same = bool(first and second and _happened(first) == _happened(second))
        parted = parted or (None if is_same else number)
        table.add_row(Text(str(number), "" if is_same else "bold"), _cell(first, is_same), _cell(second, is_same))
    yield Text("they go the same way" if parted is None else f"they part at turn {parted}", "bold")
    yield table


def _turn(
    number: int, turn: dict[str, Any], segment: dict[str, Any], colouring: str, strongest: float
) -> list[RenderableType]:
    facts = Text()
    facts.append(f"  {'✗' if turn['invalid_reason'] else '✓'} ", "yellow" if turn["invalid_reason"] else "blue")
    facts.append(on_one_line(turn["action"] if turn["action"] is not None else "no action", 200), "bold")
    if turn["invalid_reason"]:
        facts.append(f"  {on_one_line(turn['invalid_reason'], 200)}", "yellow")
    facts.append(f"  reward {turn['reward']:+.4g}", "dim")
    if turn["state_key"] is not None:
        facts.append(f"  state {on_one_line(turn['state_key'], 60)}", "dim")
    facts.append(f"  {turn['generate_seconds']:.3g} s + {turn['env_seconds']:.3g} s in the world", "dim")
    parts: list[RenderableType] = [_said(f"turn {number}", turn, segment, colouring, strongest), facts]
    if turn["observation"]:
        parts.append(Panel(Text(_cut(turn["observation"])), border_style="dim"))
    return parts


def _said(
    title: str, turn: dict[str, Any], segment: dict[str, Any], colouring: str, strongest: float
) -> RenderableType:
    """What the model wrote, token by token."""
    said = Text()
    for at in range(turn["start"], turn["end"]):
        said.append(visible(_piece(segment, at)) or "·", _style(segment, at, colouring, strongest))
    return Panel(said, title=title, title_align="left", border_style="cyan")


def _style(segment: dict[str, Any], at: int, colouring: str, strongest: float) -> str:
    value = _value(segment, at, colouring)
    if colouring == "mask":
        return _on(_SAMPLED)
    if value is None:
        return _UNKNOWN
    strength = min(1.0, abs(value) / strongest)
    if colouring == "log_prob":
        return _on(_SURPRISE, strength)
    return _on(_BELOW, strength) + " underline" if value < 0 else _on(_ABOVE, strength)


def _value(segment: dict[str, Any], at: int, colouring: str) -> float | None:
    engine = _at(segment, "log_probs", at)
    if colouring == "advantage":
        return _at(segment, "advantages", at)
    if colouring == "gap":
        trainer = _at(segment, "trainer_log_probs", at)
        return None if engine is None or trainer is None else engine - trainer
    return engine


def _strongest(record: dict[str, Any], colouring: str) -> float:
    if colouring == "log_prob":
        return 4.0
    found = [
        abs(value)
        for segment in record["segments"]
        for at in range(len(segment["ids"]))
        if (value := _value(segment, at, colouring)) is not None and math.isfinite(value)
    ]
    return max(found, default=0.0) or 1.0


def _legend(record: dict[str, Any], colouring: str) -> Text:
    sampled = sum(sum(segment["mask"]) for segment in record["segments"])
    trained = sum(value is not None for segment in record["segments"] for value in segment.get("advantages") or [None])
    keys = {
        "advantage": [("above", _on(_ABOVE)), ("below", _on(_BELOW))],
        "gap": [("engine higher", _on(_ABOVE)), ("engine lower", _on(_BELOW))],
        "log_prob": [("likely", _on(_SURPRISE, 0)), ("unlikely", _on(_SURPRISE))],
        "mask": [("sampled", _on(_SAMPLED))],
    }[colouring]
    legend = Text(f"{trained} of {sampled} sampled tokens trained; {colouring}: ", "dim")
    for name, style in (*keys, ("not known", _UNKNOWN)):
        legend.append(name, style).append(" ")
    return legend


def _cell(turn: dict[str, Any] | None, is_same: bool) -> Text:
    if turn is None:
        return Text("ended", "dim")
    cell = Text(on_one_line(turn["action"] if turn["action"] is not None else "no action", 200))
    cell.stylize("dim" if is_same else "bold")
    cell.append(f"  {turn['reward']:+.4g}\n", "dim")
    return cell.append(on_one_line(turn["observation"], 300), "dim" if is_same else "")


def _happened(turn: dict[str, Any]) -> tuple[Any, ...]:
    return turn["action"], turn["observation"], turn["reward"]


def _at(segment: dict[str, Any], name: str, at: int) -> float | None:
    values = segment.get(name)
    return values[at] if values else None


def _piece(segment: dict[str, Any], at: int) -> str:
    return str(segment["pieces"][at]) if segment.get("pieces") else f"⟨{segment['ids'][at]}⟩"


def _cut(text: str) -> str:
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text) - _LONGEST} more characters)")


def _on(colour: tuple[int, int, int], strength: float = 1.0) -> str:
    """White on the colour, the paler the weaker, so that it reads on dark and on light terminals."""
    red, green, blue = (round(70 + (part - 70) * (0.2 + 0.8 * strength)) for part in colour)
    return f"white on rgb({red},{green},{blue})"
