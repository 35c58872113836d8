"""A pseudo-random order of an epoch's shards that needs no memory for any number of shards.

It is a Feistel network over a rectangle of numbers that is just large enough for the epoch. Each
round shifts one coordinate by a hash of the other. This is reversible, so no two positions get the
same shard. Results outside the epoch go through the network again (cycle walking). The same seed
and epoch always give the same order, so a restarted master can continue within an epoch. Any change
here breaks the data sets of running jobs.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

_ROUNDS = 6
_WORD = 2**64 - 1


def shuffled(position: int, count: int, seed: int, epoch: int) -> int:
    """Return the shard, from 0 to `count` - 1, that is handed out at a position of an epoch."""
    rows, columns = _rectangle(count)
    keys = _keys(seed, epoch)
    while True:
        row, column = divmod(position, columns)
        for index in range(0, _ROUNDS, 2):
            row = (row + _hash(column ^ keys[index])) % rows
            column = (column + _hash(row ^ keys[index + 1])) % columns
        position = row * columns + column
        if position < count:
            return position


def unshuffled(shard: int, count: int, seed: int, epoch: int) -> int:
    """Return the position of an epoch at which a shard is handed out."""
    rows, columns = _rectangle(count)
    keys = _keys(seed, epoch)
    while True:
        row, column = divmod(shard, columns)
        for index in range(_ROUNDS - 2, -1, -2):
            column = (column - _hash(row ^ keys[index + 1])) % columns
            row = (row - _hash(column ^ keys[index])) % rows
        shard = row * columns + column
        if shard < count:
            return shard


def _rectangle(count: int) -> tuple[int, int]:
    """Return the sides of a rectangle, nearly a square, of `count` numbers or a few more."""
    rows = isqrt(count - 1) + 1
    return rows, -(-count // rows)


@lru_cache(maxsize=256)
def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    state = _hash(seed) ^ _hash(~epoch & _WORD)
    return tuple(
        _hash((state + index * 0x9E3779B97F4A7C15) & _WORD) for index in range(1, _ROUNDS + 1)
    )


def _hash(value: int) -> int:
    """Return 64 well mixed bits (the finalizer of SplitMix64)."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31
