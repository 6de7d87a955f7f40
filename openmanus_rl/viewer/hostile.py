"""Text that a model or a world wrote, made safe for a terminal: what would act there is shown instead."""

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control characters but newline and tab, marks of direction and of no width, halves of characters."""


def visible(text: str) -> str:
    """The text with every hidden character as something to see: ␛ for the old ones, its number for the others."""
    return _HIDDEN.sub(lambda match: _shown(ord(match[0])), text)


def on_one_line(text: str, longest: int = 120) -> str:
    """The start of a text, visible, without line breaks."""
    cut = text if len(text) <= longest else text[:longest] + " …"
    return visible(cut.replace("\n", " ⏎ ").replace("\t", " "))


def _shown(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
