"""Finds the processes of a job's pods that are in standby, and resizes a job that has them."""

from __future__ import annotations

import asyncio

from tests.support.e2e.trial import SECONDS, Trial
from tests.support.standby import in_standby
from tests.support.wait import until


async def resize(trial: Trial, *, in_pod: int) -> set[int]:
    """Scale a job from two pods to three and back, each time when all are in standby.

    Check that the new worlds begin with these, so many of each pod. Return the processes of the
    last world, when the next ones are in standby.
    """
    before = await _all_in_standby(trial, 2 * in_pod)
    await trial.scale(3)
    running = _pids(trial, standby=False)
    assert before & running == before, "the new world began without them"
    before = await _all_in_standby(trial, 3 * in_pod)
    await trial.scale(2)
    training = before & _pids(trial, standby=False)
    assert len(training) == 2 * in_pod
    await _all_in_standby(trial, 2 * in_pod)
    return training


async def _all_in_standby(trial: Trial, count: int) -> set[int]:
    async def waiting() -> set[int]:
        await asyncio.sleep(0.5)  # a look at all processes takes CPU from the training
        return _pids(trial, standby=True)

    return await until(
        "processes in standby", waiting, lambda found: len(found) == count, seconds=SECONDS
    )


def _pids(trial: Trial, *, standby: bool) -> set[int]:
    return {
        process.pid
        for pod in trial.observer.pods
        for process in trial.sandbox.processes(pod)
        if in_standby(process.pid, process.cmdline()) is standby
    }
