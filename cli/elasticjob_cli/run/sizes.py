"""How many workers a run begins with, between which bounds it can be scaled, and what a change of size means. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from elasticjob_client.errors import ClientError
from elasticjob_client.scaling import SizeChange

MOST_WORKERS = 128
"""Of one run: more processes than a machine has use for, and each has an address of its own in the run's subnet."""
_RANGE = re.compile(r"([0-9]{1,4}):([0-9]{1,4})")


@dataclass(frozen=True)
class Bounds:
    """The fewest and the most workers that a run may have."""

    least: int
    most: int


def initial_size(number: int | None, workers: str | None) -> tuple[int, Bounds]:
    """Return how many workers a run begins with, and its bounds.

    Without a number it begins with the most that it may have: on one machine they can all be had at once.

    Args:
        number: of `-n`; None: not given.
        workers: of `--workers`, such as `1:4`; None: any number from 1.

    Raises:
        ClientError: a number is out of bounds, or the text is no range.
    """
    bounds = Bounds(1, MOST_WORKERS) if workers is None else _bounds(workers)
    if number is None:
        return (1 if workers is None else bounds.most), bounds
    if not bounds.least <= number <= bounds.most:
        raise ClientError(f"-n {number} is not between {bounds.least} and {bounds.most}")
    return number, bounds


def resized(change: SizeChange, present: Collection[str], bounds: Bounds) -> int:
    """Return the number of workers after a change.

    Args:
        change: what shall become of the workers.
        present: names of the workers that neither leave nor have finished.
        bounds: of the run.

    Raises:
        ClientError: the change is out of bounds, or names what is no worker.
    """
    if unknown := sorted(set(change.pods) - set(present)):
        raise ClientError(f"{unknown[0][:80]} is no worker of this run; there are {', '.join(sorted(present))}")
    if change.replicas is not None:
        size = change.replicas
    else:
        size = len(present) + change.add - change.remove - len(set(change.pods))
    if not bounds.least <= size <= bounds.most:
        raise ClientError(
            f"{size} workers: this run may have {bounds.least} to {bounds.most} (--workers MIN:MAX of `elasticjob run`)"
        )
    return size


def _bounds(text: str) -> Bounds:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ClientError(f"--workers {text[:40]!r}: give the fewest and the most, such as 1:4")
    least, most = int(match[1]), int(match[2])
    if not 1 <= least <= most <= MOST_WORKERS:
        raise ClientError(f"--workers {text}: not 1 <= fewest <= most <= {MOST_WORKERS}")
    return Bounds(least, most)
