"""Decides which workers of a run start, leave and restart, and when the run ends. Pure.

A state and an event give a new state and actions. In a cluster the operator decides this, by many
more rules: for plans, roles, drains and nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Literal

from elasticjob_api import names
from elasticjob_api.last_words import signal_name
from elasticjob_processes.killing import shell_code

_SIGNALS = 65
Phase = Literal["running", "leaving", "succeeded"]


@dataclass(frozen=True)
class Worker:
    """One worker. `incarnation`: the number of earlier workers with its index."""

    incarnation: int
    phase: Phase = "running"


@dataclass(frozen=True)
class Start:
    """Start an agent."""

    index: int
    incarnation: int


@dataclass(frozen=True)
class Drain:
    """Let an agent end after its process has saved."""

    index: int


@dataclass(frozen=True)
class Finish:
    """The run has ended or ends now; the remaining workers are ended."""

    succeeded: bool
    why: str = ""


Action = Start | Drain | Finish


@dataclass(frozen=True)
class Workers:
    """The workers of a run.

    Attributes:
        present: the workers that run, leave or have succeeded, by index.
        used: the number of workers that have had an index, so that no name is used twice.
        restarts: the number of restarts after agents were killed.
        restart_limit: the bound of restarts.
        stopping: all workers leave, and none is started.
    """

    present: Mapping[int, Worker] = field(default_factory=dict)
    used: Mapping[int, int] = field(default_factory=dict)
    restarts: int = 0
    restart_limit: int = 3
    stopping: bool = False

    def indices(self, *phases: Phase) -> list[int]:
        """Return the indices of the workers in these phases, in order."""
        return sorted(index for index, worker in self.present.items() if worker.phase in phases)

    @property
    def finishing(self) -> bool:
        """Return whether a worker has finished its training, which fixes the size."""
        return bool(self.indices("succeeded"))


Decision = tuple[Workers, tuple[Action, ...]]


def scale(workers: Workers, size: int, *, leaving: Collection[int] = ()) -> Decision:
    """Change the size: the lowest free indices join, the named or the highest ones leave."""
    running = workers.indices("running")
    staying = [index for index in running if index not in leaving]
    leave = [*sorted(set(running) - set(staying)), *staying[size:]]
    free = (index for index in count() if index not in workers.present)
    join = list(islice(free, max(0, size - len(staying))))
    return _join(_leave(workers, leave), join, tuple(Drain(index) for index in leave))


def stop(workers: Workers) -> Decision:
    """End the run before its training has finished."""
    running = workers.indices("running")
    after = replace(_leave(workers, running), stopping=True)
    return after, (*(Drain(index) for index in running), *_end_of_all(after))


def ended(workers: Workers, index: int, code: int, *, rank: int | None = None) -> Decision:
    """Decide what follows when an agent has ended with an exit code.

    `rank`: its training process's rank in the last world, not its index; None if unknown.
    """
    worker = workers.present[index]
    if code == 0 and not workers.stopping:
        after = replace(
            workers, present={**workers.present, index: replace(worker, phase="succeeded")}
        )
        return after, _end_of_all(after)
    remaining = {other: each for other, each in workers.present.items() if other != index}
    without = replace(workers, present=remaining)
    if worker.phase == "leaving" or workers.stopping:
        return without, _end_of_all(without)
    if (code > 0 and code != names.EXIT_DRAINED) or without.restarts >= without.restart_limit:
        # An agent that ends with its process' code has used up the restarts of the process.
        which = f"worker {index}" if rank is None else f"worker {index} (rank {rank})"
        return without, (Finish(succeeded=False, why=f"{which} has failed: {describe_exit(code)}"),)
    return _join(replace(without, restarts=without.restarts + 1), [index], ())


def describe_exit(code: int) -> str:
    """Return a description of an exit code; below 0 or above 128 it is a signal."""
    number = shell_code(code) - 128
    if 0 < number < _SIGNALS:
        return f"ended by {signal_name(number)}"
    return f"exit code {code}"


def _leave(workers: Workers, indices: Collection[int]) -> Workers:
    leaving = {index: replace(workers.present[index], phase="leaving") for index in indices}
    return replace(workers, present={**workers.present, **leaving})


def _join(workers: Workers, indices: Collection[int], before: tuple[Action, ...]) -> Decision:
    joined = {index: Worker(workers.used.get(index, 0)) for index in indices}
    after = replace(
        workers,
        present={**workers.present, **joined},
        used={
            **workers.used,
            **{index: worker.incarnation + 1 for index, worker in joined.items()},
        },
    )
    return after, (*before, *(Start(index, worker.incarnation) for index, worker in joined.items()))


def _end_of_all(workers: Workers) -> tuple[Action, ...]:
    if workers.indices("running", "leaving"):
        return ()
    return (Finish(succeeded=not workers.stopping and workers.finishing),)
