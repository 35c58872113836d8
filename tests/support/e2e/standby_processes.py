"""Finds the processes of a job's pods that are in standby."""

from __future__ import annotations

import asyncio

from elasticjob_cli.demo.observer import JobObserver

from tests.support.e2e.sandbox import Sandbox
from tests.support.standby import in_standby
from tests.support.wait import until

_SECONDS = 300


async def all_in_standby(sandbox: Sandbox, observer: JobObserver, count: int) -> set[int]:
    """Wait until this number of processes is in standby; return these."""

    async def waiting() -> set[int]:
        await asyncio.sleep(0.5)  # a look at all processes takes CPU from the training
        return _pids(sandbox, observer, standby=True)

    return await until(
        "processes in standby", waiting, lambda found: len(found) == count, seconds=_SECONDS
    )


def running(sandbox: Sandbox, observer: JobObserver) -> set[int]:
    """Return the processes of the job's pods that are not in standby."""
    return _pids(sandbox, observer, standby=False)


def _pids(sandbox: Sandbox, observer: JobObserver, *, standby: bool) -> set[int]:
    return {
        process.pid
        for pod in observer.pods
        for process in sandbox.processes(pod)
        if in_standby(process.pid, process.cmdline()) is standby
    }
