"""One episode as one HTML file, with the page's own view: nothing is fetched, nothing but its own script runs."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from openmanus_rl.viewer.hostile import on_one_line
from openmanus_rl.viewer.jsons import for_page, to_json

PAGE = Path(__file__).parent / "page"
MODULES = ("dom.js", "format.js", "text.js", "tokens.js", "episode_view.js")
"""What draws an episode, each after those it needs."""
_START = """
const record = JSON.parse(document.getElementById("record").textContent);
document.getElementById("main").append(episodeView(record));
"""


def episode_page(record: Mapping[str, Any]) -> str:
    """The file's text for a record as `openmanus_rl.agent.records` writes it."""
    script, style = _script(), _style()
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    title = html.escape(on_one_line(f"{record['item_id']}, {record['stop_reason']}"))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n'
        f'<body>\n<main id="main"></main>\n'
        f'<script type="application/json" id="record">{_data(record)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _data(record: Mapping[str, Any]) -> str:
    """JSON in which no character can end or open an element."""
    return to_json(for_page(record)).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _script() -> str:
    """The modules as one: their imports are of each other, and their names are distinct."""
    sources = [(PAGE / name).read_text(encoding="utf-8") for name in MODULES]
    whole = "\n".join(re.sub(r"^import .*\n|^export (?=\w)", "", source, flags=re.MULTILINE) for source in sources)
    return whole + _START


@cache
def _style() -> str:
    return "".join((PAGE / name).read_text(encoding="utf-8") for name in ("style.css", "episode.css"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
