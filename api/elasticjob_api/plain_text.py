"""Writes texts for people; escapes what controls a terminal in texts of others.

Standard library only, and nothing of it that is slow.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # controls of the direction of writing
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ud800-\udfff]"  # half characters, which no output can encode
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return a text whose control characters are escaped as in JSON, such as \u001b or \n.

    Args:
        text: the text, which may be JSON; it stays valid JSON of the same value.
        lines: keep the ends of lines.
    """
    if text.isascii() and text.isprintable():
        return text

    def escape(found: re.Match[str]) -> str:
        character = found[0]
        if lines and character == "\n":
            return character
        return _SHORT.get(character) or f"\\u{ord(character):04x}"

    return _CONTROLS.sub(escape, text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 worker, 2 workers."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
