"""Compact sets of numbers: a list of runs, each with its distance from the last one, and length.

Shards are handed out in runs and mostly end in runs, so the list is short. Distances are small
numbers, which compress well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def pack(numbers: Iterable[int]) -> list[int]:
    """Return the runs, distance and length alternating."""
    runs: list[int] = []
    end = 0
    for number in sorted(numbers):
        if number == end and runs:
            runs[-1] += 1
        else:
            runs += (number - end, 1)
        end = number + 1
    return runs


def unpack(runs: Sequence[int], *, most: int) -> list[int]:
    """Return the numbers, ascending.

    Raises:
        ValueError: the runs are invalid, or they have more than `most` numbers.
    """
    if len(runs) % 2 or any(run < 0 for run in runs) or sum(runs[1::2]) > most:
        raise ValueError(f"not a list of runs with at most {most} numbers")
    numbers: list[int] = []
    end = 0
    for distance, length in zip(runs[::2], runs[1::2], strict=True):
        numbers.extend(range(end + distance, end + distance + length))
        end += distance + length
    return numbers
