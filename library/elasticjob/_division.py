"""Divides a global batch among the processes of a world.

The global batch is the user's choice and does not follow the world; what one process trains at once
does. All processes get equally many micro-batches of each global batch, so none of them waits in a
collective for one that has run out of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

RULES: Mapping[str, Callable[[float], float]] = {
    "none": lambda ratio: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}
"""The factor of the learning rate by the ratio of the global batch to the reference batch."""


@dataclass(frozen=True)
class Division:
    """The micro-batches of a global batch; their sizes differ by one sample at most.

    Attributes:
        micro_batch: the samples of the largest micro-batch.
        accumulation: the micro-batches of each process.
        remainder: the number of micro-batches with `micro_batch` samples, the others have one less;
            0 if all have as many.
    """

    micro_batch: int
    accumulation: int
    remainder: int


@dataclass(frozen=True)
class Part:
    """A micro-batch: the samples that this process trains at once.

        for part in batches:
            backward(part.scale * loss(part.indices))
            if part.last:
                optimizer.step()

    Attributes:
        batch: the number of the global batch, counted over all epochs from 0.
        epoch: counted from 0.
        indices: the samples; where there are too few, one of another process with `scale` 0.
        scale: the factor of the mean loss. The gradients, averaged over the processes and added up,
            are then those of the global batch.
        last: whether it is this process' last one of the global batch.
    """

    batch: int
    epoch: int
    indices: list[int]
    scale: float
    last: bool


def divide(batch: int, processes: int, most: int | None = None) -> Division:
    """Divide a global batch, with `most` samples in a micro-batch at most."""
    accumulation = math.ceil(batch / (processes * most)) if most else 1
    count = processes * accumulation
    return Division(math.ceil(batch / count), accumulation, batch % count)


def micro_batches(
    batch: int, rank: int, processes: int, most: int | None = None
) -> Iterator[tuple[range, float, bool]]:
    """Yield the positions in the global batch, the scale and whether it is the last, of a rank."""
    accumulation = divide(batch, processes, most).accumulation
    size, longer = divmod(batch, processes * accumulation)
    for turn in range(accumulation):
        number = turn * processes + rank
        start = number * size + min(number, longer)
        positions = range(start, start + size + (number < longer))
        last = turn == accumulation - 1
        yield positions or range(1), len(positions) * processes / batch, last


def learning_rate_factor(rule: str, *, batch: int, reference: int) -> float:
    """Return the factor of a learning rate that was chosen for another batch.

    Raises ValueError if there is no such rule.
    """
    if rule not in RULES:
        raise ValueError(f"learning_rate is {rule!r}; it must be one of {', '.join(RULES)}")
    return RULES[rule](batch / reference)
