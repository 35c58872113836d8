"""The workers of a run and what becomes of them, as pure functions.

A state and an event give a state and actions. It is what the operator decides for a job, as far as
one machine needs it: who joins and who leaves, what is restarted, and when the run has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Literal

from elasticjob_api import names

_SIGNALS = 65
Phase = Literal["running", "leaving", "succeeded"]


@dataclass(frozen=True)
class Worker:
    """One worker. `incarnation`: how many workers have had its index before."""

    incarnation: int
    phase: Phase = "running"


@dataclass(frozen=True)
class Start:
    """Start an agent."""

    index: int
    incarnation: int


@dataclass(frozen=True)
class Drain:
    """Have an agent end, after its process has saved."""

    index: int


@dataclass(frozen=True)
class Finish:
    """The run has ended, or ends now: those that still run are ended."""

    succeeded: bool
    why: str = ""


Action = Start | Drain | Finish


@dataclass(frozen=True)
class Workers:
    """What is remembered of a run's workers.

    Attributes:
        present: by index those that run, leave or have succeeded.
        used: by index how many workers there have been, so that no name is used twice.
        restarts: workers that were started again so far, as their agents had been killed.
        restart_limit: how many that may be.
        stopping: all leave, and nothing is started any more.
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
        """Whether a worker has finished its training: the size is not changed any more."""
        return bool(self.indices("succeeded"))


Decision = tuple[Workers, tuple[Action, ...]]


def scale(workers: Workers, size: int, *, leaving: Collection[int] = ()) -> Decision:
    """Return what makes the run this large.

    The lowest free indices join, those named or the highest ones leave.
    """
    running = workers.indices("running")
    staying = [index for index in running if index not in leaving]
    leave = [*sorted(set(running) - set(staying)), *staying[size:]]
    free = (index for index in count() if index not in workers.present)
    join = list(islice(free, max(0, size - len(staying))))
    return _join(_leave(workers, leave), join, tuple(Drain(index) for index in leave))


def stop(workers: Workers) -> Decision:
    """Return what ends the run before its training has finished."""
    running = workers.indices("running")
    after = replace(_leave(workers, running), stopping=True)
    return after, (*(Drain(index) for index in running), *_end_of_all(after))


def ended(workers: Workers, index: int, code: int) -> Decision:
    """Return what follows when an agent has ended with an exit code."""
    worker = workers.present[index]
    if code == 0 and not workers.stopping:
        after = replace(
            workers, present={**workers.present, index: replace(worker, phase="succeeded")}
        )
        return after, _end_of_all(after)
    gone = replace(
        workers, present={other: each for other, each in workers.present.items() if other != index}
    )
    if worker.phase == "leaving" or workers.stopping:
        return gone, _end_of_all(gone)
    if (code > 0 and code != names.EXIT_DRAINED) or gone.restarts >= gone.restart_limit:
        # With a code of its process an agent ends that has started it again as often as it may.
        return gone, (
            Finish(succeeded=False, why=f"worker {index} has failed: {describe_exit(code)}"),
        )
    return _join(replace(gone, restarts=gone.restarts + 1), [index], ())


def describe_exit(code: int) -> str:
    """Return an exit code for people; negative, or above 128: a signal has ended the process."""
    number = -code if code < 0 else code - 128
    if code < 0 or 128 < code < 128 + _SIGNALS:
        return f"ended by signal {number}"
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
