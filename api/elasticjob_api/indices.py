"""Sets of member indices, and their compact form in the status: `0,2-4` stands for {0, 2, 3, 4}.

A decision about a job compares several sets of its members. A job may have 10,000 of them, and one
of them changes. So a set is the bits of one number, and comparing two sets takes about as long for
10,000 members as for ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache

from elasticjob_api.limits import MAX_COUNTER, MAX_INDEX, MAX_INDICES

MAX_TEXT = MAX_INDICES * len(f"{MAX_INDEX},")
"""The greatest length of a text: all indices are listed, and each is as long as the highest one."""
_SHOWN = 60


class IndexSet:
    """An immutable set of indices from 0 to `MAX_INDEX`; iterating is ascending.

    Raises:
        ValueError: an index is not in these bounds. A user's pod may have such a one, and the bits
            of a set with it could be more than the memory.
    """

    __slots__ = ("_bits",)

    def __init__(self, indices: Iterable[int] = ()) -> None:
        bits = 0
        for index in indices:
            if not is_index(index):
                raise ValueError(f"index {index} is not from 0 to {MAX_INDEX}")
            bits |= 1 << index
        self._bits = bits

    @classmethod
    def of_ranges(cls, ranges: Iterable[range]) -> IndexSet:
        """Return the set of all indices in these ranges, which are within the bounds."""
        bits = 0
        for members in ranges:
            bits |= ((1 << len(members)) - 1) << members.start
        return _of_bits(bits)

    def ranges(self) -> list[range]:
        """Return the set as ranges: ascending, as long as possible."""
        edges = list(_of_bits(self._bits ^ self._bits << 1))
        return list(map(range, edges[::2], edges[1::2]))

    @property
    def highest(self) -> int:
        """The highest index; -1 if the set is empty."""
        return self._bits.bit_length() - 1

    def with_index(self, index: int, *, present: bool = True) -> IndexSet:
        """Return the set with this index, or without it; an index out of bounds is in no set."""
        if not is_index(index) or self._bits >> index & 1 == present:
            return self
        return _of_bits(self._bits ^ 1 << index)

    def free(self) -> Iterator[int]:
        """Yield the indices that are not in the set, the lowest first, without an end."""
        index = 0
        for used in self.ranges():
            yield from range(index, used.start)
            index = used.stop
        while True:
            yield index
            index += 1

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and is_index(index) and bool(self._bits >> index & 1)

    def __iter__(self) -> Iterator[int]:
        digits = bin(self._bits)[:1:-1]
        index = digits.find("1")
        while index >= 0:
            yield index
            index = digits.find("1", index + 1)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __and__(self, other: IndexSet) -> IndexSet:
        return _of_bits(self._bits & other._bits)

    def __or__(self, other: IndexSet) -> IndexSet:
        return _of_bits(self._bits | other._bits)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return _of_bits(self._bits & ~other._bits)

    def __xor__(self, other: IndexSet) -> IndexSet:
        return _of_bits(self._bits ^ other._bits)

    def __le__(self, other: IndexSet) -> bool:
        return not self._bits & ~other._bits

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IndexSet):
            return self._bits == other._bits
        return frozenset(self) == other if isinstance(other, AbstractSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self))  # as of a frozenset, to which it may be equal

    def __repr__(self) -> str:
        return f"IndexSet({format_indices(self)!r})"


def is_index(number: int) -> bool:
    """Return whether a member may have this index."""
    return 0 <= number <= MAX_INDEX


def format_indices(indices: Iterable[int]) -> str:
    """Return the compact form: ascending, with a dash for runs, without spaces."""
    found = indices if isinstance(indices, IndexSet) else IndexSet(indices)
    return ",".join(_format_range(members) for members in found.ranges())


# One decision parses the same few texts of a status about forty times.
@lru_cache(maxsize=64)
def parse_indices(text: str) -> IndexSet:
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
    return IndexSet.of_ranges(ranges)


def read_indices(text: str) -> IndexSet:
    """Return the set of indices in a status; an invalid text stands for no index."""
    try:
        return parse_indices(text)
    except ValueError:
        return IndexSet()


def _of_bits(bits: int) -> IndexSet:
    found = object.__new__(IndexSet)
    found._bits = bits
    return found


def _format_range(members: range) -> str:
    return str(members.start) if len(members) == 1 else f"{members.start}-{members.stop - 1}"


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
