"""JSON that a browser reads whatever a run has written."""

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> str:
    """Records may hold numbers that JSON has no word for; a browser would refuse the whole for one of them."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()  # halves of characters


def for_page(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose seed is text: a browser's numbers are too short for it."""
    return {**record, "seed": str(record.get("seed"))}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value
