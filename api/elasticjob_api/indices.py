"""Sets of member indices in the compact form of the status: `0,2-4` stands for {0, 2, 3, 4}."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from elasticjob_api.limits import MAX_COUNTER, MAX_INDEX, MAX_INDICES

MAX_TEXT = MAX_INDICES * len(f"{MAX_INDEX},")
"""The greatest length of a text: all indices are listed, and each is as long as the highest one."""
_SHOWN = 60


def format_indices(indices: Iterable[int]) -> str:
    """Return the compact form: ascending, with a dash for runs, without spaces."""
    ordered = sorted(set(indices))
    if not ordered:
        return ""
    starts = [ordered[0], *(right for left, right in pairwise(ordered) if right != left + 1)]
    ends = [*(left for left, right in pairwise(ordered) if right != left + 1), ordered[-1]]
    return ",".join(map(_format_range, starts, ends))


def parse_indices(text: str) -> frozenset[int]:
    """Return the set of indices in a compact form.

    It has at most `MAX_INDICES` indices, each at most `MAX_INDEX`. These limits are checked before
    a range is expanded, so no text can use much time or memory.

    Raises:
        ValueError: the text is not a compact form, or is beyond the limits; the message names the
            invalid part.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(
            f"indices {text[:_SHOWN]!r}…: {len(text)} characters are more than {MAX_TEXT}"
        )
    ranges = [_parse_range(text, part) for part in text.split(",")] if text else []
    if (count := sum(map(len, ranges))) > MAX_INDICES:
        raise ValueError(f"indices {_shown(text)}: {count} indices are more than {MAX_INDICES}")
    return frozenset(index for members in ranges for index in members)


def read_indices(text: str) -> frozenset[int]:
    """Return the set of indices in a status; an invalid text stands for no index."""
    try:
        return parse_indices(text)
    except ValueError:
        return frozenset()


def _format_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _parse_range(text: str, part: str) -> range:
    first, _, last = part.partition("-")
    if not (_is_number(first) and (_is_number(last) or not last)) or part.endswith("-"):
        raise ValueError(
            f"indices {_shown(text)}: {part[:_SHOWN]!r} is neither a number nor a range such as 2-4"
        )
    members = range(int(first), int(last or first) + 1)
    if not members:
        raise ValueError(f"indices {_shown(text)}: the range {part!r} ends below its start")
    if members[-1] > MAX_INDEX:
        raise ValueError(
            f"indices {_shown(text)}: {members[-1]} is above the highest index, {MAX_INDEX}"
        )
    return members


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_COUNTER))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
