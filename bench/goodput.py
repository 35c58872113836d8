"""Figures about goodput: the share of all nodes' time that ends as training steps of the model.

A Monte-Carlo simulation of a job whose nodes fail at random, with the costs of each way to resume.
docs/frameworks/README.md has the table and the assumptions.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from bench.figure import Result

_NODES = 64
_SIMULATED_SECONDS = 100 * 3600.0
_RUNS = 5
_STATE_GIB = 1.0
"""Assumption: the state of the training on each node."""


@dataclass(frozen=True)
class Costs:
    """What failures and saves cost, in seconds.

    Attributes:
        kill: the pause of the training after a kill.
        join: the pause when a replacement joins.
        save: the pause for a save of the state; the best interval follows from it.
        load: the time that loading the state adds to the pause after a kill.
        load_of_joiner: the time that loading adds when a replacement joins; the others wait for it.
        missing: the time from a kill until the replacement can join; the others train.
    """

    kill: float
    join: float
    save: float
    load: float
    load_of_joiner: float
    missing: float


# kill and join: `make bench FIGURE=pause_pytorch_s`, and the tests of processes that continue; the
# measured values of docs/frameworks/README.md. Assumptions: the node reads and writes 1 GiB/s of
# shared storage and copies 7 GiB/s in memory; a new node receives 10 Gbit/s; a replacement needs
# 30 s for its pod, its image and its imports.
_STORAGE = _STATE_GIB / 1.0
_COPY = _STATE_GIB / 7.0
_RECEIVE = _STATE_GIB * 8.6 / 10
NONE = Costs(5.6, 5.2, _STORAGE, _STORAGE, _STORAGE, missing=30)
STANDBY = replace(NONE, kill=2.2, join=1.4)
IN_MEMORY = replace(STANDBY, save=_COPY, load=_COPY, load_of_joiner=_RECEIVE)
IN_PROCESS = replace(IN_MEMORY, kill=0.3, join=0.1)
SILENT = replace(IN_PROCESS, kill=3 + 0.3)
"""Each node vanishes without closing its connections. The other members notice it after 3 s."""
WAYS = {
    "no standby, storage": NONE,
    "A: standby, storage": STANDBY,
    "A + B: standby, memory": IN_MEMORY,
    "C: in the process": IN_PROCESS,
    "C, silent nodes": SILENT,
}
_FREE = Costs(0, 0, 1e-3, 0, 0, missing=30)
"""Only the missing nodes cost something."""


def goodput(costs: Costs, mtbf: float, seed: int, *, seconds: float = _SIMULATED_SECONDS) -> float:
    """Return the goodput of a simulated job.

    Args:
        costs: what its way to resume costs.
        mtbf: the mean time between two failures of one node, in seconds.
        seed: decides when nodes fail.
        seconds: the simulated time.
    """
    draw = random.Random(seed).expovariate  # noqa: S311 - a simulation
    interval = math.sqrt(2 * costs.save * mtbf / _NODES)
    now = trained = saved = 0.0  # node-seconds of training, and those in the newest saved state
    back: list[float] = []  # when the missing nodes can join
    save_at = interval
    failure = draw(_NODES / mtbf)
    pause = 0.0  # after a kill
    while now < seconds:
        joining = not pause and bool(back) and back[0] <= now
        saving = joining or (not pause and save_at <= now)
        if saving:
            until = now + costs.save + (costs.join + costs.load_of_joiner if joining else 0.0)
        else:
            until = now + pause if pause else min([save_at, *back[:1]])
        if failure < until:  # a state that is being saved is lost, too
            heapq.heappush(back, failure + costs.missing)
            trained = saved
            now = failure
            pause = costs.kill + costs.load
            failure = now + draw(max(1, _NODES - len(back)) / mtbf)
            continue
        if saving or pause:
            saved = trained
            save_at = until + interval
            pause = 0.0
            while joining and back and back[0] <= now:
                heapq.heappop(back)
        else:
            trained += (until - now) * (_NODES - len(back))
        now = until
    return trained / (now * _NODES)


def with_mtbf(hours: float) -> Callable[[], Awaitable[Result]]:
    """Return the measurement for a mean time between failures; all ways go to standard error."""

    async def measure() -> Result:
        runs = {
            name: [goodput(costs, hours * 3600, seed) for seed in range(_RUNS)]
            for name, costs in {**WAYS, "limit": _FREE}.items()
        }
        for name, values in runs.items():
            sys.stderr.write(f"{name:<24} {sorted(values)[_RUNS // 2]:.3f}\n")
        return Result(runs["C: in the process"], runs["limit"], "")

    return measure
