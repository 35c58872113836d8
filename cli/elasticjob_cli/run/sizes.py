"""Computes the first number of workers of a run, its bounds, and the result of a change. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.scaling import SizeChange
from elasticjob_client.template_options import parse_workers

MOST_WORKERS = 128
"""The bound of a run's workers: each needs an address in the run's subnet."""


@dataclass(frozen=True)
class Bounds:
    """The fewest and the most workers that a run may have."""

    least: int
    most: int


def initial_size(number: int | None, workers: str | None) -> tuple[int, Bounds]:
    """Return the first number of workers of a run, and its bounds.

    Args:
        number: the value of `-n`; None if not given.
        workers: the value of `--workers`: `4`, or `1:4`, which begins with 1 without `number`; None
            if not given.

    Raises:
        WrongArgument: a number is out of bounds, or the text contains no numbers.
    """
    given = parse_workers(workers) if workers is not None else 1
    if number is not None and workers is not None and isinstance(given, int):
        raise WrongArgument(
            f"-n {number} and --workers {workers}: "
            "give one of them, or bounds such as --workers 1:4"
        )
    bounds = Bounds(1, MOST_WORKERS) if isinstance(given, int) else Bounds(*given)
    least = given if isinstance(given, int) else bounds.least
    size = least if number is None else number
    if bounds.most > MOST_WORKERS:
        raise WrongArgument(f"--workers {workers}: one machine has at most {MOST_WORKERS}")
    if not bounds.least <= size <= bounds.most:
        raise WrongArgument(f"{size} workers: not between {bounds.least} and {bounds.most}")
    return size, bounds


def resized(change: SizeChange, present: Collection[str], bounds: Bounds) -> int:
    """Return the number of workers after a change; `present` ones neither leave nor have finished.

    Raises:
        ClientError: the change is out of bounds, or names a missing worker.
    """
    unknown = sorted(set(change.pods) - set(present))
    if unknown:
        raise ClientError(
            f"{unknown[0][:80]} is not a worker of this run; there are {', '.join(sorted(present))}"
        )
    if change.replicas is not None:
        size = change.replicas
    else:
        size = len(present) + change.add - change.remove - len(set(change.pods))
    if not bounds.least <= size <= bounds.most:
        raise ClientError(
            f"{size} workers: this run may have {bounds.least} to {bounds.most} "
            "(--workers MIN:MAX of `elasticjob run`)"
        )
    return size
