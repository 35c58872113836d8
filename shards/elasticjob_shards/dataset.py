"""A data set, and the samples of its shards.

A data set is one range of samples, several parts (such as files of lines) with their own shards, or
a stream: a range that grows until its end is declared.

The ids of shards number all epochs in the order of the samples. Shards are handed out by position.
Without shuffling, the position is the id. With shuffling, it is the place in the shuffled order of
the epoch.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from elasticjob_api.refusals import BadRequest

from elasticjob_shards.shuffle import shuffled, unshuffled

MOST_PARTS = 20_000
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_LARGEST = 2**53


class Shard(NamedTuple):
    """The samples from `start` (included) to `end` (excluded) of a part, in one epoch."""

    id: int
    epoch: int
    start: int
    end: int
    part: int = 0


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Attributes:
        name: its name within the job.
        size: the number of samples in an epoch; for a stream, the number so far.
        shard_size: samples in a shard; the last shard of a part may be smaller.
        epochs: the number of times each sample is trained.
        shuffle: whether the shards of each epoch are handed out in random order.
        seed: the seed of the random order.
        parts: the sizes of the parts; empty if the data set is one range.
        parts_digest: a hash of the parts' names, which only the training processes know.
        streamed: whether it is a stream.
        ended: whether it is a stream that gets no more samples.
    """

    name: str
    size: int
    shard_size: int
    epochs: int = 1
    shuffle: bool = False
    seed: int = 0
    parts: tuple[int, ...] = ()
    parts_digest: str = ""
    streamed: bool = False
    ended: bool = False

    @cached_property
    def per_epoch(self) -> int:
        """The number of shards in one epoch; in a growing stream, only of full shards."""
        if self.parts:
            return self._edges[-1]
        if self.growing:
            return self.size // self.shard_size
        return -(-self.size // self.shard_size)

    @cached_property
    def total(self) -> int:
        """The number of shards in all epochs."""
        return self.per_epoch * self.epochs

    @property
    def growing(self) -> bool:
        """True for a stream that has not ended."""
        return self.streamed and not self.ended

    @property
    def declaration(self) -> Dataset:
        """The fields that every declaration must repeat: a stream's size and end may differ."""
        if not self.streamed:
            return self
        return replace(self, size=0, ended=False)

    def at(self, position: int) -> Shard:
        """Return the shard that is handed out at a position."""
        epoch, place = divmod(position, self.per_epoch)
        if self.shuffle:
            place = shuffled(place, self.per_epoch, self.seed, epoch)
        shard_id = epoch * self.per_epoch + place
        part = 0
        size = self.size
        if self.parts:
            part = bisect_right(self._edges, place)
            if part:
                place -= self._edges[part - 1]
            size = self.parts[part]
        start = place * self.shard_size
        return Shard(shard_id, epoch, start, min(start + self.shard_size, size), part)

    def position(self, shard_id: int) -> int:
        """Return the position at which a shard is handed out."""
        if not self.shuffle:
            return shard_id
        epoch, place = divmod(shard_id, self.per_epoch)
        return epoch * self.per_epoch + unshuffled(place, self.per_epoch, self.seed, epoch)

    def check(self) -> None:
        """Raise `BadRequest` if a field is invalid."""
        if not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"dataset is {self.name[:80]!r}; it must have 1 to 63 letters, digits, '-', '_' or "
                "'.'"
            )
        least = 0 if self.streamed else 1
        for field, value, lowest in (
            ("size", self.size, least),
            ("shard_size", self.shard_size, 1),
        ):
            if not lowest <= value <= _LARGEST:
                raise BadRequest(f"{field} is {value}; it must be between {lowest} and {_LARGEST}")
        if self.streamed and (self.epochs != 1 or self.shuffle or self.parts):
            raise BadRequest("a streamed data set has one epoch, no shuffle and no parts")
        if not 1 <= self.epochs <= _LARGEST:
            raise BadRequest(f"epochs is {self.epochs}; it must be between 1 and {_LARGEST}")
        if self.total > _LARGEST:
            raise BadRequest(
                f"size, shard_size and epochs make {self.total} shards; at most {_LARGEST} are "
                "possible"
            )

    def grown(self, size: int, *, final: bool) -> Dataset:
        """Return the stream with a new size, or ended. Raises `BadRequest`."""
        if not self.streamed:
            raise BadRequest(
                f"data set {self.name} was not declared as streamed; its size stays {self.size}"
            )
        if size > _LARGEST:
            raise BadRequest(f"size is {size}; it must be at most {_LARGEST}")
        if self.ended and size > self.size:
            raise BadRequest(f"size is {size}, but {self.name} has ended with {self.size} samples")
        return replace(self, size=max(size, self.size), ended=self.ended or final)

    @cached_property
    def _edges(self) -> tuple[int, ...]:
        """The cumulative number of shards in an epoch, by part."""
        return tuple(accumulate(-(-size // self.shard_size) for size in self.parts))


def digest_of(parts: Iterable[tuple[str, int]]) -> str:
    """Return a hash of the names and sizes of parts; empty for no parts."""
    text = "".join(f"{len(name)} {name} {size} " for name, size in parts)
    if not text:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
