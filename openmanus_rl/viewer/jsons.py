"""JSON that a browser reads whatever a run has written."""

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> str:
    """Records may hold what JSON has no word for: odd numbers, dates; a browser would refuse the whole for one."""
    try:
        text = _dumps(value)
    except (ValueError, TypeError):
        text = _dumps(_plain(value))
    return text.encode("utf-8", "replace").decode()  # halves of characters


def for_page(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose seed is text: a browser's numbers are too short for it."""
    return {**record, "seed": str(record.get("seed"))}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)


def _plain(value: Any) -> Any:
    """Numbers that are finite or None, and keys that are text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
