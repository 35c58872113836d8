"""A job as a program handles it.

This is the asynchronous twin; `client.py` drives it for programs without a loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, Phase, Progress
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_client import jobs, related
from elasticjob_client.cluster import Cluster
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.errors import NotInTime
from elasticjob_client.job_logs import job_logs
from elasticjob_client.job_repr import job_html, job_text
from elasticjob_client.jobs import read
from elasticjob_client.logs import LogLine, LogOptions
from elasticjob_client.members import Choice
from elasticjob_client.records import Records, history_records, report_record
from elasticjob_client.related import Event
from elasticjob_client.report import open_master_or_report
from elasticjob_client.scaling import SizeChange, removal, request_size, size_change, wait_for_end
from elasticjob_client.waiting import wait_for

log = logging.getLogger("elasticjob.client")


class AsyncJob:
    """A job of a cluster.

    Every method raises `NoSuchObject` once the job is deleted, and `ClientError` where the API
    server refuses it.

    Attributes:
        name: its name.
        namespace: its namespace.
        last_seen: the job as the API server had it when it was last asked.
    """

    def __init__(self, cluster: Callable[[], Awaitable[Cluster]], last_seen: ElasticJob) -> None:
        """Made by `AsyncClient`."""
        self._session = cluster
        self.name = last_seen.metadata.name
        self.namespace = last_seen.metadata.namespace
        self.last_seen = last_seen

    async def refresh(self) -> ElasticJob:
        """Return the job as it is now."""
        self.last_seen = await jobs.get_job(await self._cluster(), self.name)
        return self.last_seen

    async def seen_within(self, seconds: float) -> None:
        """Refresh what was last seen. Raises `NotInTime`, `ClientError`."""
        try:
            async with asyncio.timeout(seconds):
                await self.refresh()
        except TimeoutError as error:
            raise NotInTime(f"the API server has not answered within {seconds:g} s") from error

    async def phase(self) -> Phase:
        """Return its phase, such as `Running`."""
        return (await self.refresh()).status.phase or "Pending"

    async def progress(self) -> Progress | None:
        """Return how the training goes: step, total, samples a second, metrics.

        None before the first report.
        """
        return (await self.refresh()).status.progress

    async def wait(self, until: str = "succeeded", *, timeout: float | None = None) -> Self:  # noqa: ASYNC109
        """Wait until the job has reached something.

        Args:
            until: a phase such as `running`, `ended`, or `step=N`.
            timeout: seconds at most; None: no bound.

        Raises:
            JobEnded: it has ended without it.
            NotInTime: it has not come within `timeout`.
        """
        self.last_seen = await wait_for(await self._cluster(), self.name, until, seconds=timeout)
        return self

    async def scale(
        self,
        size: int | str,
        *,
        role: str = names.ROLE_WORKER,
        wait: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> str:
        """Request another size; return the name of the object that says how it goes.

        Args:
            size: 4, or "+2" or "-1" for so many more or less.
            role: that is scaled.
            wait: until it is done.
            timeout: seconds to wait at most; None: no bound.

        Raises:
            NotInTime: it is not done within `timeout`.
            ClientError: it is refused, or has failed.
        """
        return await self._change(size_change(size, role=role), wait=wait, seconds=timeout)

    async def remove(self, *pods: str, role: str = names.ROLE_WORKER, wait: bool = False) -> str:
        """Request that these pods leave, after they have saved; as `scale` does."""
        return await self._change(removal(pods, role=role), wait=wait, seconds=None)

    async def suspend(self) -> None:
        """Let its members save and its pods go. Raises `JobEnded` if it has ended."""
        await jobs.set_run_policy(await self._cluster(), self.name, suspend=True)

    async def resume(self) -> None:
        """Let it go on after `suspend`. Raises `JobEnded` if it has ended."""
        await jobs.set_run_policy(await self._cluster(), self.name, suspend=False)

    async def stop(self) -> None:
        """End it for good, as Failed, after its members have saved.

        Raises `JobEnded` if it has ended.
        """
        await jobs.set_run_policy(await self._cluster(), self.name, stop=True)

    async def delete(self) -> None:
        """Delete it with all that is its own."""
        await jobs.delete_job(await self._cluster(), self.name)

    async def logs(
        self,
        *,
        follow: bool = False,
        ranks: Sequence[int] = (),
        role: str | None = None,
        every: bool = False,
        tail: int | None = None,
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines that members write; by default the one with rank 0.

        Args:
            follow: go on, also with members that come, until the job has ended.
            ranks: of these members.
            role: of this role's members; `master` is the job's master.
            every: of all members.
            tail: begin with so many of the last lines; None: all.

        Raises:
            ClientError: there is no such member, or its log cannot be read.
        """
        choice = Choice(ranks, role, every)
        options = LogOptions(tail)
        found = job_logs(
            await self._cluster(), self.name, choice, options, follow=follow, notify=log.info
        )
        async with aclosing(found) as lines:
            async for line in lines:
                yield line

    async def plans(self) -> list[ScalePlan]:
        """Return its ScalePlans, the oldest first: who wanted which size, and what came of it."""
        cluster = await self._cluster()
        return [
            read(plan, ScalePlan) for plan in await related.plans_of(cluster, await self.refresh())
        ]

    async def events(self) -> list[Event]:
        """Return what was said of the job and its pods, the oldest first.

        Most clusters keep events for an hour.
        """
        return await related.events_of(await self._cluster(), await self.refresh())

    async def history(self) -> Records:
        """Return the throughput over time.

        A pandas DataFrame where pandas is installed, else a list of records. Each sample has `time`
        (seconds since the epoch), `round`, `world_size`, `step`, `samples_per_second` and the
        metrics, such as `loss`. Of a job without a master, as after its end, it is what its master
        has stored.

        Raises:
            MasterUnavailable: the job has no master now, and nothing is stored.
            MasterUnreachable: it does not answer, and nothing is stored.
        """
        async with open_master_or_report(await self._cluster(), self.name) as master:
            return history_records(await master.get("History"))

    async def report(self) -> dict[str, Any]:
        """Return the job's account, also after its end.

        Outcome, steps, samples, goodput, hours, failures, metrics.
        Times are seconds since the epoch, durations seconds; a goodput below 0 is not known.

        Raises:
            MasterUnavailable: the job has no master now, and nothing is stored.
            MasterUnreachable: it does not answer, and nothing is stored.
        """
        async with open_master_or_report(await self._cluster(), self.name) as master:
            return report_record(await master.get("Report"))

    @asynccontextmanager
    async def dashboard(self, *, port: int = 0) -> AsyncIterator[str]:
        """Serve the job's dashboard at a port of this machine until the block ends; yields its URL.

        Args:
            port: of 127.0.0.1; 0: one that is free.

        Raises:
            MasterUnavailable: the job has no master now, and nothing is stored.
            MasterUnreachable: it does not answer, and nothing is stored.
            ClientError: the port is taken.
        """
        async with serve_dashboard(await self._cluster(), self.name, port=port) as url:
            yield url

    def __repr__(self) -> str:
        return job_text(type(self).__name__, self.last_seen)

    def _repr_html_(self) -> str:
        return job_html(self.last_seen)

    async def _change(self, change: SizeChange, *, wait: bool, seconds: float | None) -> str:
        cluster = await self._cluster()
        request = await request_size(cluster, self.name, change)
        if wait:
            await wait_for_end(cluster, request, seconds=seconds)
        return request.name

    async def _cluster(self) -> Cluster:
        """Return the session, for the job's own namespace."""
        session = await self._session()
        return Cluster(session.kube, self.namespace)
