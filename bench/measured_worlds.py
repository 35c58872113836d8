"""Worlds of real training jobs: the step times that others have measured and published.

The profiles are those of Pollux's artifact (OSDI '21), on 16 nodes of 4 GPUs: one folder for each
application, with `placements.csv` and `scalability.csv`. They are no part of this tree. They are
read where `ELASTICJOB_TRACES` points to, or from `shared/traces` beside the checkout.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.autoscale_worlds import Curve, World

GPUS = 4
"""The GPUs of each node, one for each member."""
_MOST = 64
BATCHES = {
    "bert": (48, 192),
    "cifar10": (512, 2048),
    "deepspeech2": (80, 320),
    "imagenet": (400, 3200),
    "ncf": (2048, 32768),
    "yolov3": (32, 128),
}
"""Samples of a step of the whole job; it stays the same at each size."""
STARTS = (1, 4, 16)


@dataclass(frozen=True)
class _Step:
    """A measured step.

    Attributes:
        local: samples of each member.
        seconds: its time.
        sync: the part of it in which members wait for each other.
    """

    local: int
    seconds: float
    sync: float


def profiles_folder() -> Path | None:
    """Return the folder of the profiles; None if this machine has none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "traces"
    folder = Path(os.environ.get("ELASTICJOB_TRACES", beside)) / "profiles"
    return folder if folder.is_dir() else None


def measured_worlds(folder: Path, application: str) -> Iterator[World]:
    """Yield a world for each batch size of an application, and for each size to begin with."""
    for batch in BATCHES[application]:
        for start in STARTS:
            name = f"{application}, batch {batch}, from {start}"
            curve = rates_of(folder / application, batch)
            yield World(application, name, curve, start, _MOST, node=GPUS)


def rates_of(folder: Path, batch: int) -> Curve:
    """Return the samples per second of each size with a batch."""
    steps = _steps(folder)
    rates = {size: batch / _seconds(steps, size, batch / size) for size in range(1, _MOST + 1)}
    return lambda size: rates[size]


@cache
def _steps(folder: Path) -> Mapping[int, Sequence[_Step]]:
    """Return the measured steps by number of members, on as few nodes as were measured."""
    found: dict[int, tuple[int, list[_Step]]] = {}
    for size, nodes, step in _rows(folder):
        fewest, steps = found.get(size, (nodes, []))
        if nodes < fewest:
            fewest = nodes
            steps = []
        if nodes == fewest:
            found[size] = (fewest, [*steps, step])
    return {size: sorted(steps, key=lambda step: step.local) for size, (_, steps) in found.items()}


def _rows(folder: Path) -> Iterator[tuple[int, int, _Step]]:
    """Yield members, nodes and step of each row; placements only where no fewer nodes do."""
    for row in _table(folder / "placements.csv"):
        placement = [int(digit) for digit in row["placement"]]
        if sorted(placement)[1:].count(GPUS) == len(placement) - 1:
            yield sum(placement), len(placement), _step(row)
    for row in _table(folder / "scalability.csv"):
        yield int(row["num_replicas"]), int(row["num_nodes"]), _step(row)


def _table(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as rows:
        yield from csv.DictReader(rows)


def _step(row: dict[str, str]) -> _Step:
    return _Step(int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))


def _seconds(steps: Mapping[int, Sequence[_Step]], size: int, local: float) -> float:
    """Return the time of a step; between measured sizes it is interpolated."""
    lower = max(n for n in steps if n <= size)
    upper = min(n for n in steps if n >= size)
    part = 0.0 if lower == upper else math.log(size / lower) / math.log(upper / lower)
    ends = [_at_local(steps[n], local) for n in (lower, upper)]
    return math.exp((1 - part) * math.log(ends[0]) + part * math.log(ends[1]))


def _at_local(steps: Sequence[_Step], local: float) -> float:
    """Return the time of a step with this number of samples of each member.

    A smaller share than any measured one takes as long as that. A larger one does not fit into
    memory at once: it is computed in parts, and synchronised once.
    """
    least = steps[0]
    most = steps[-1]
    if local >= most.local:
        return (most.seconds - most.sync) * local / most.local + most.sync
    if local <= least.local:
        return least.seconds
    after = next(number for number, step in enumerate(steps) if step.local > local)
    lower = steps[after - 1]
    upper = steps[after]
    part = (local - lower.local) / (upper.local - lower.local)
    return lower.seconds + part * (upper.seconds - lower.seconds)
