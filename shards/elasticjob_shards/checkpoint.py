"""Encodes a ledger as bytes, which are saved with a model: the shards that it was trained on."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticjob_api.refusals import BadRequest

from elasticjob_shards.dataset import Dataset

_VERSION = 1
_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class Position:
    """The progress in a data set: positions below `fresh` are done, save `undone` and `failed`."""

    fresh: int
    undone: list[int]
    failed: list[int]


def encode(dataset: Dataset, position: Position) -> bytes:
    """Return the checkpoint."""
    content = {
        "version": _VERSION,
        "of": _shape(dataset),
        "size": dataset.size,
        "fresh": position.fresh,
        "undone": pack(position.undone),
        "failed": pack(position.failed),
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode())


def decode(state: bytes, dataset: Dataset, *, most: int) -> tuple[Dataset, Position]:
    """Return the position of a checkpoint, and the data set; empty bytes are the beginning.

    A stream is returned with at least the size of the checkpoint.

    Raises:
        BadRequest: this is not a checkpoint of the data set, or it has more than `most` undone or
            failed shards.
    """
    if not state:
        return dataset, Position(0, [], [])
    try:
        content = json.loads(_inflated(state))
        if content["version"] != _VERSION:
            raise BadRequest(
                f"state has version {content['version']!r}; this master reads version {_VERSION}"
            )
        shape = dict(content["of"])
        size = int(content["size"])
        fresh = int(content["fresh"])
        undone, failed = (
            unpack([int(run) for run in content[field]], most=most)
            for field in ("undone", "failed")
        )
    except (zlib.error, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadRequest(
            f"state is not a checkpoint of a data set, or it is damaged: {error!r}"
        ) from error
    for field, value in _shape(dataset).items():
        if shape.get(field) != value:
            raise BadRequest(
                f"state is a checkpoint of a data set with {field} {shape.get(field)!r}; "
                f"{dataset.name} has {value!r}"
            )
    if dataset.growing:
        dataset = dataset.grown(size, final=False)
    _check(dataset, fresh, undone, failed)
    return dataset, Position(fresh, undone, failed)


def pack(numbers: Iterable[int]) -> list[int]:
    """Return a list of runs, each with its distance from the last one, and its length.

    Shards are handed out in runs and mostly end in runs, so the list is short. Distances are small
    numbers, which compress well.
    """
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
    """Return the numbers, ascending; raises ValueError for invalid runs or more than `most`."""
    if len(runs) % 2 or any(run < 0 for run in runs) or sum(runs[1::2]) > most:
        raise ValueError(f"not a list of runs with at most {most} numbers")
    numbers: list[int] = []
    end = 0
    for distance, length in zip(runs[::2], runs[1::2], strict=True):
        numbers.extend(range(end + distance, end + distance + length))
        end += distance + length
    return numbers


def digest(state: bytes) -> str:
    """Return a hash of a checkpoint."""
    return hashlib.sha256(state).hexdigest()[:32]


def _inflated(state: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(state, _LARGEST)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("it is truncated or too long, or other data follows it")
    return text


def _check(dataset: Dataset, fresh: int, undone: list[int], failed: list[int]) -> None:
    if not 0 <= fresh <= dataset.total:
        raise BadRequest(f"state is at shard {fresh}; {dataset.name} has {dataset.total} shards")
    if max((*undone, *failed), default=-1) >= fresh or not set(undone).isdisjoint(failed):
        raise BadRequest("state is damaged: its undone and failed shards contradict its position")


def _shape(dataset: Dataset) -> dict[str, int | str | bool]:
    """Return the fields that determine the meaning of positions; `epochs` does not."""
    shape: dict[str, int | str | bool] = {
        "shard_size": dataset.shard_size,
        "shuffle": dataset.shuffle,
        "seed": dataset.seed,
        "parts": dataset.parts_digest,
        "streamed": dataset.streamed,
    }
    if not dataset.streamed:
        shape["size"] = dataset.size
    return shape
