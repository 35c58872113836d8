"""Scales, ends, queries and lists the runs on this machine, for other commands."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.plain_text import counted
from elasticjob_api.times import format_time
from elasticjob_api.v1 import job_pb2
from elasticjob_client.answers import Master
from elasticjob_client.errors import ClientError, JobEnded, MasterUnavailable, NotInTime
from elasticjob_client.master import MasterEndpoint
from elasticjob_client.scaling import SizeChange

from elasticjob_cli.common.formats import TABLES, Output
from elasticjob_cli.common.formatting import UNKNOWN, format_age, format_steps, table_of
from elasticjob_cli.common.local_runs import LOCAL, RunInfo, base_folder, find, runs
from elasticjob_cli.common.printing import print_data
from elasticjob_cli.common.streams import echo
from elasticjob_cli.common.tables import Table, show
from elasticjob_cli.run import control

T = TypeVar("T")
_POLL_SECONDS = 0.1


def scale_run(info: RunInfo, change: SizeChange, *, wait: bool, timeout: float | None) -> str:
    """Change the number of workers, and return a message for the user.

    Raises:
        ClientError: the change is refused.
        JobEnded: the run has ended meanwhile.
        NotInTime: the new world has not formed within `timeout` seconds.
    """
    if change.role != names.ROLE_WORKER:
        raise ClientError(
            f"run {info.name} has no role {change.role[:80]}; it has {names.ROLE_WORKER}"
        )
    answer = asyncio.run(control.request(folder_of(info), control.Scale(change)))
    if not wait:
        return f"run {info.name}: {counted(answer.size, 'worker')} requested"
    asyncio.run(_wait_for_size(info, answer.size, seconds=timeout))
    return f"run {info.name} trains with {counted(answer.size, 'worker')}"


def stop_run(info: RunInfo, *, wait: bool, timeout: float | None) -> str:
    """End a run after its workers have saved, and return a message. Raises as `scale_run`."""
    asyncio.run(control.request(folder_of(info), control.Stop()))
    if not wait:
        return f"run {info.name} will be stopped"
    deadline = None if timeout is None else time.monotonic() + timeout
    while find(base_folder(os.environ), info.name) is not None:
        if deadline is not None and time.monotonic() > deadline:
            raise NotInTime(f"run {info.name} has not ended within {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    return f"run {info.name} is stopped"


class _Observed(NamedTuple):
    """A run, with the answers of its command and of its master, if they answer."""

    info: RunInfo
    shown: control.Answer | None
    status: job_pb2.JobStatus | None

    @property
    def progress(self) -> job_pb2.Progress:
        """The progress of the training; empty without an answer of the master."""
        return job_pb2.Progress() if self.status is None else self.status.progress


async def _observed() -> list[_Observed]:
    async def observe(info: RunInfo) -> _Observed:
        shown, status = await asyncio.gather(
            _or_none(control.request(folder_of(info), control.Show())), status_of(info)
        )
        return _Observed(info, shown, status)

    return await asyncio.gather(*map(observe, runs(base_folder(os.environ))))


def print_runs(output: Output) -> None:
    """Print the runs of this user, as `elasticjob list --local` does."""
    if output in TABLES:
        show(runs_table(time.time()))
    elif output is Output.NAME:
        for info in runs(base_folder(os.environ)):
            echo(info.name)
    else:
        print_data(runs_data(), json_=output is Output.JSON)


def runs_data() -> list[Json]:
    """Return the runs for programs; numbers that no process has reported are None."""
    return [
        {
            "name": info.name,
            "size": None if shown is None else shown.size,
            "worldSize": None if status is None else status.world_size,
            "step": None if status is None else status.progress.step,
            "totalSteps": (status.progress.total_steps or None) if status is not None else None,
            "stepsPerSecond": None if status is None else status.progress.steps_per_second,
            "started": format_time(info.started),
            "command": list(info.command),
        }
        for info, shown, status in asyncio.run(_observed())
    ]


def runs_table(now: float) -> Table:
    """Return a table with a line for each run, with its master's numbers."""

    def size(run: _Observed) -> str:
        if run.shown is None or run.status is None:
            return UNKNOWN
        return f"{run.status.world_size}/{run.shown.size}"

    def rate(run: _Observed) -> str:
        steps_per_second = run.progress.steps_per_second
        return f"{steps_per_second:.3g}/s" if steps_per_second else UNKNOWN

    columns: dict[str, Callable[[_Observed], str]] = {
        "NAME": lambda run: run.info.name,
        "WORKERS": size,
        "STEP": lambda run: format_steps(run.progress.step, run.progress.total_steps),
        "RATE": rate,
        "AGE": lambda run: format_age(format_time(run.info.started), now),
        "COMMAND": lambda run: shlex.join(run.info.command),
    }
    return table_of(asyncio.run(_observed()), columns)


@asynccontextmanager
async def open_run_master(info: RunInfo) -> AsyncIterator[Master]:
    """Connect to the master of a run. Raises `MasterUnavailable` if the run has ended."""
    if find(base_folder(os.environ), info.name) != info:
        raise MasterUnavailable(f"run {info.name} has ended")
    endpoint = MasterEndpoint(info.master, info.token, info.authority.encode())
    async with endpoint.channel() as channel:
        yield Master(endpoint, channel, f"{LOCAL}{info.name}")


async def _wait_for_size(info: RunInfo, size: int, *, seconds: float | None) -> None:
    """Wait until the run trains with `size` workers. 0 seconds ask for the present state."""
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while not await _trains_with(info, size):
            if deadline is not None and time.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
    except ClientError as error:
        if find(base_folder(os.environ), info.name) is None:
            raise JobEnded(f"run {info.name} has ended") from error
        raise
    raise NotInTime(f"run {info.name} does not train with {size} workers within {seconds:g} s")


async def _trains_with(info: RunInfo, size: int) -> bool:
    leaving = (await control.request(folder_of(info), control.Show())).leaving
    status = await status_of(info)
    return (
        status is not None
        and status.phase == job_pb2.JOB_PHASE_TRAINING
        and status.world_size == size
        and not leaving
    )


async def status_of(info: RunInfo) -> job_pb2.JobStatus | None:
    """Return the status that the master of a run reports; None if it does not answer."""
    with suppress(ClientError):
        async with open_run_master(info) as master:
            status: job_pb2.JobStatus = await master.get("Status")
            return status
    return None


async def _or_none(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except ClientError:
        return None


def folder_of(info: RunInfo) -> Path:
    """Return the folder of a run."""
    return base_folder(os.environ) / info.name
