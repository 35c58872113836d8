"""Sets of member indices in the compact form of the status: `0,2-4` stands for {0, 2, 3, 4}."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise


def format_indices(indices: Iterable[int]) -> str:
    """Return the compact form: ascending, runs joined by a dash, no spaces; empty for no index."""
    ordered = sorted(set(indices))
    if not ordered:
        return ""
    starts = [ordered[0], *(right for left, right in pairwise(ordered) if right != left + 1)]
    ends = [*(left for left, right in pairwise(ordered) if right != left + 1), ordered[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def parse_indices(text: str) -> frozenset[int]:
    """Return the set that a compact form stands for.

    Raises:
        ValueError: the text is not such a form; it names the part that is wrong.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not last)) or part.endswith("-"):
            raise ValueError(f"indices {text!r}: {part!r} is neither a number nor a range such as 2-4")
        members = range(int(first), int(last or first) + 1)
        if not members:
            raise ValueError(f"indices {text!r}: the range {part!r} ends below its start")
        found.update(members)
    return frozenset(found)
