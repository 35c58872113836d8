"""What other commands do with a run on this machine: find it by its name, scale it, end it, ask its master.

`local/NAME` always means a run. NAME alone does if there is one of this name, and no option names a cluster.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import grpc.aio
import typer
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2, job_pb2_grpc
from elasticjob_client.errors import ClientError, JobEnded, NotInTime
from elasticjob_client.scaling import SizeChange

from elasticjob_cli.master_client import MasterEndpoint
from elasticjob_cli.run import control
from elasticjob_cli.run.folder import RunInfo, base_folder, find, runs

PREFIX = "local/"
T = TypeVar("T")
_POLL_SECONDS = 0.1
_CALL_SECONDS = 2.0


def local_run(name: str, *cluster_options: object) -> RunInfo | None:
    """Return the run that a command means, and say so; None: an object of a cluster is meant.

    Args:
        name: as the user has given it.
        cluster_options: values of the options that name a cluster or a namespace; None: not given.

    Raises:
        ClientError: a run is meant, and there is none.
    """
    base = base_folder(os.environ)
    if name.startswith(PREFIX):
        found = find(base, name.removeprefix(PREFIX))
        if found is None:
            there = ", ".join(info.name for info in runs(base)) or "none"
            raise ClientError(f"there is no run {name[:80]} on this machine; there are: {there}")
        return found
    found = None if any(option is not None for option in cluster_options) else find(base, name)
    if found is not None:
        typer.echo(f"run {name} on this machine (-n NAMESPACE: in a cluster)", err=True)
    return found


def scale_run(info: RunInfo, change: SizeChange, *, wait: bool, timeout: float | None) -> str:
    """Change the number of workers, and return what to say.

    Raises:
        ClientError: it is refused.
        JobEnded: the run has ended meanwhile.
        NotInTime: the new world has not formed within `timeout` seconds.
    """
    if change.role != names.ROLE_WORKER:
        raise ClientError(f"run {info.name} has no role {change.role[:80]}; it has {names.ROLE_WORKER}")
    wanted = control.Scale(
        replicas=change.replicas, add=change.add, remove=change.remove, pods=list(change.pods)
    )
    answer = asyncio.run(control.request(_folder(info), wanted))
    if not wait:
        return f"run {info.name}: {answer.size} workers are requested"
    asyncio.run(_wait_for_size(info, answer.size, timeout))
    return f"run {info.name} trains with {answer.size} workers"


def stop_run(info: RunInfo, *, wait: bool, timeout: float | None) -> str:
    """End a run after its workers have saved, and return what to say. Raises as `scale_run`."""
    asyncio.run(control.request(_folder(info), control.Stop()))
    if not wait:
        return f"run {info.name} will be stopped"
    deadline = None if timeout is None else time.monotonic() + timeout
    while find(base_folder(os.environ), info.name) is not None:
        if deadline is not None and time.monotonic() > deadline:
            raise NotInTime(f"run {info.name} has not ended within {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    return f"run {info.name} is stopped"


def statuses() -> list[tuple[RunInfo, control.Answer | None, job_pb2.JobStatus | None]]:
    """Return all runs with what they and their masters tell; None for one that does not answer."""

    async def ask(info: RunInfo) -> tuple[RunInfo, control.Answer | None, job_pb2.JobStatus | None]:
        shown = await _or_none(lambda: control.request(_folder(info), control.Show()))
        return info, shown, await _or_none(lambda: _status(info))

    async def ask_all() -> list[tuple[RunInfo, control.Answer | None, job_pb2.JobStatus | None]]:
        return await asyncio.gather(*map(ask, runs(base_folder(os.environ))))

    return asyncio.run(ask_all())


def endpoint(info: RunInfo) -> MasterEndpoint:
    """Return how the master of a run is queried."""
    return MasterEndpoint(info.master, info.token, info.authority.encode())


async def _wait_for_size(info: RunInfo, size: int, timeout: float | None) -> None:
    """Wait until the run trains with so many workers."""

    async def until_it_trains() -> None:
        while True:
            leaving = (await control.request(_folder(info), control.Show())).leaving
            status = await _or_none(lambda: _status(info))
            trains = status is not None and status.phase == job_pb2.JOB_PHASE_TRAINING
            if trains and status is not None and status.world_size == size and not leaving:
                return
            await asyncio.sleep(_POLL_SECONDS)

    try:
        await asyncio.wait_for(until_it_trains(), timeout)
    except TimeoutError as error:
        raise NotInTime(f"run {info.name} does not train with {size} workers within {timeout:g} s") from error
    except ClientError as error:
        if find(base_folder(os.environ), info.name) is None:
            raise JobEnded(f"run {info.name} has ended") from error
        raise


async def _status(info: RunInfo) -> job_pb2.JobStatus:
    master = endpoint(info)
    async with master.channel() as channel:
        stub = job_pb2_grpc.JobServiceStub(channel)
        return await stub.GetStatus(job_pb2.GetStatusRequest(), metadata=master.metadata, timeout=_CALL_SECONDS)


async def _or_none(call: Callable[[], Awaitable[T]]) -> T | None:
    try:
        return await call()
    except (ClientError, grpc.aio.AioRpcError):
        return None


def _folder(info: RunInfo) -> Path:
    return base_folder(os.environ) / info.name
