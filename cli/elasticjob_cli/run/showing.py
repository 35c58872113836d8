"""Shows the runs on this machine as jobs are shown: for top, logs, wait and dashboard."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import BinaryIO

from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.v1 import job_pb2
from elasticjob_client.answers import Master
from elasticjob_client.dashboard import serve_run
from elasticjob_client.errors import ClientError, JobEnded, NotInTime, WrongArgument
from elasticjob_client.master import MasterEndpoint
from elasticjob_client.waiting import STEP

from elasticjob_cli.common.local_runs import RunInfo, base_folder, find
from elasticjob_cli.common.tables import Shown
from elasticjob_cli.run import control
from elasticjob_cli.run.local import folder_of, open_run_master, status_of
from elasticjob_cli.run.output import RECORD, rank_of

_POLL_SECONDS = 0.2
_PHASES = ("running", "ended", "succeeded", "failed", "stopped")


async def frames_of_run(
    info: RunInfo, frames: Callable[[Master], AsyncGenerator[Shown, None]]
) -> AsyncGenerator[Shown, None]:
    """Yield the frames of a run's masters, until it has ended. Raises `ClientError`."""
    while True:
        with suppress(ClientError):
            async with open_run_master(info) as master, aclosing(frames(master)) as found:
                async for frame in found:
                    yield frame
        if not _lasts(info):
            return
        await asyncio.sleep(_POLL_SECONDS)


def dashboard_of_run(info: RunInfo, *, port: int) -> AbstractAsyncContextManager[str]:
    """Serve the page of a run; yields its URL."""
    host = info.master.rpartition(":")[0]
    address = host_port(host, names.HTTP_PORT)
    return serve_run(
        MasterEndpoint(address, info.token, info.authority.encode()), info.name, port=port
    )


async def wait_for_run(info: RunInfo, milestone: str, *, seconds: float | None) -> str:
    """Wait until a run has reached a milestone, and return a message.

    Raises:
        WrongArgument: a run cannot reach this milestone.
        JobEnded: the run has ended without reaching it.
        NotInTime: the time is over.
    """
    step = STEP.fullmatch(milestone)
    wanted = milestone.casefold()
    if step is None and wanted not in _PHASES:
        raise WrongArgument(f"{milestone[:40]!r}: a run is {', '.join(_PHASES)}; or give step=N")
    deadline = None if seconds is None else time.monotonic() + seconds
    end = await control.end_of_run(folder_of(info))
    try:
        while not end.done():
            status = await status_of(info)
            if status is not None and (
                status.progress.step >= int(step[1])
                if step
                else wanted == "running" and status.phase == job_pb2.JOB_PHASE_TRAINING
            ):
                return f"run {info.name} is Running, step {status.progress.step}"
            if deadline is not None and time.monotonic() >= deadline:
                raise NotInTime(f"run {info.name} is not {milestone} within {seconds:g} s")
            await asyncio.wait({end}, timeout=_POLL_SECONDS)
        outcome = end.result()
    finally:
        end.cancel()
    if wanted in ("ended", outcome.casefold()):
        return f"run {info.name} is {outcome}"
    raise JobEnded(f"run {info.name} has ended, as {outcome}")


async def print_log(
    info: RunInfo,
    *,
    ranks: Collection[int],
    tail: int | None,
    follow: bool,
    write: Callable[[str], None],
) -> None:
    """Write the last lines of these ranks, or of all; with `follow`, until the run has ended.

    Raises:
        ClientError: the run has ended meanwhile.
    """
    try:
        record = (folder_of(info) / RECORD).open("rb")
    except OSError as error:
        raise ClientError(f"run {info.name} has ended") from error
    with record:
        for line in deque(_lines(record, ranks), maxlen=tail):
            write(line)
        while follow:
            follow = _lasts(info)
            if record.tell() > os.fstat(record.fileno()).st_size:
                record.seek(0)  # the record was full, and has begun again
            for line in _lines(record, ranks):
                write(line)
            await asyncio.sleep(_POLL_SECONDS if follow else 0)


def _lines(record: BinaryIO, ranks: Collection[int]) -> Iterator[str]:
    """Yield the complete lines from the present position on."""
    for line in record.readlines():
        text = line.decode(errors="replace").rstrip("\r\n")
        if not ranks or rank_of(text) in ranks:
            yield text


def _lasts(info: RunInfo) -> bool:
    return find(base_folder(os.environ), info.name) == info
