"""A job of the asynchronous client; `client.py` runs it for programs that do not use `await`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_REPLICAS, ElasticJob, Phase, Progress
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_client import jobs, related
from elasticjob_client.answers import open_master_or_report
from elasticjob_client.arguments import check_seconds, check_sequence, check_text, check_whole
from elasticjob_client.cluster import Cluster
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.errors import NotInTime
from elasticjob_client.job_logs import job_logs
from elasticjob_client.job_repr import job_html, job_text
from elasticjob_client.jobs import read
from elasticjob_client.logs import LogLine, LogOptions
from elasticjob_client.members import Choice
from elasticjob_client.related import Event
from elasticjob_client.scaling import SizeChange, change_size, removal, size_change, wait_for_end
from elasticjob_client.waiting import wait_for

log = logging.getLogger("elasticjob.client")
_MOST_LINES = 1_000_000_000
Records = Any
"""A `pandas.DataFrame`, or a list of dictionaries if pandas is not installed."""


class AsyncJob:
    """A job of a cluster.

    Every method raises `NoSuchObject` once the job is deleted, and `ClientError` if the API server
    refuses the request.

    Attributes:
        name: its name.
        namespace: its namespace.
        last_seen: the job as the API server last returned it.
    """

    def __init__(self, cluster: Callable[[], Awaitable[Cluster]], last_seen: ElasticJob) -> None:
        """`AsyncClient` creates jobs."""
        self._session = cluster
        self.name = last_seen.metadata.name
        self.namespace = last_seen.metadata.namespace
        self.last_seen = last_seen

    async def refresh(self) -> ElasticJob:
        """Return the present job."""
        self.last_seen = await jobs.get_job(await self._cluster(), self.name)
        return self.last_seen

    async def seen_within(self, seconds: float) -> None:
        """Refresh `last_seen`. Raises `NotInTime`, `ClientError`."""
        try:
            async with asyncio.timeout(seconds):
                await self.refresh()
        except TimeoutError as error:
            raise NotInTime(f"the API server has not answered within {seconds:g} s") from error

    async def phase(self) -> Phase:
        """Return its present phase, such as `Running`."""
        return (await self.refresh()).status.phase or "Pending"

    async def progress(self) -> Progress | None:
        """Return the present step, rate and metrics; None before the first report."""
        return (await self.refresh()).status.progress

    async def wait(self, until: str = "succeeded", *, timeout: float | None = None) -> Self:  # noqa: ASYNC109
        """Wait until the job has reached a phase or a step.

        Args:
            until: a phase such as `running`, `ended`, or `step=N`.
            timeout: seconds to wait at most; None for no bound.

        Raises:
            JobEnded: the job has ended without reaching it.
            NotInTime: the job has not reached it within `timeout`.
        """
        check_text("until", until, "running")
        check_seconds("timeout", timeout)
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
        """Request another size, and return the name of the request; empty if none is needed.

        The request is a ScalePlan, ScaleOut or ScaleIn, whose status shows its progress. A
        suspended job resumes with the size, and one that has it already needs nothing.

        Args:
            size: the new size, such as 4, or the difference, such as "+2" or "-1".
            role: the role to scale.
            wait: wait until the change is done.
            timeout: seconds to wait at most; None for no bound.

        Raises:
            NotInTime: the change is not done within `timeout`.
            ClientError: the request is refused, or has failed.
        """
        check_seconds("timeout", timeout)
        return await self._change(size_change(size, role=role), wait=wait, seconds=timeout)

    async def remove(self, *pods: str, role: str = names.ROLE_WORKER, wait: bool = False) -> str:
        """Request that these pods leave after they have saved; like `scale`."""
        return await self._change(removal(pods, role=role), wait=wait, seconds=None)

    async def suspend(self) -> None:
        """Suspend the job: its members save, and its pods are deleted. Raises `JobEnded`."""
        await jobs.set_run_policy(await self._cluster(), self.name, suspend=True)

    async def resume(self) -> None:
        """Resume the job after `suspend`. Raises `JobEnded`."""
        await jobs.set_run_policy(await self._cluster(), self.name, suspend=False)

    async def stop(self) -> None:
        """End the job for good, as Stopped, after its members have saved. Raises `JobEnded`."""
        await jobs.set_run_policy(await self._cluster(), self.name, stop=True)

    async def delete(self) -> None:
        """Delete the job and its objects."""
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
        """Yield the lines that members write; the default is the member with rank 0.

        Args:
            follow: follow the logs, also of members that join later, until the job has ended.
            ranks: the ranks of the members.
            role: the role of the members; `master` is the job's master.
            every: choose all members.
            tail: the number of last lines to start with; None for all.

        Raises:
            ClientError: there is no such member, or a log cannot be read.
        """
        check_sequence("ranks", ranks, [0])
        for rank in ranks:
            check_whole("ranks", rank, MAX_REPLICAS)
        check_whole("tail", tail, _MOST_LINES)
        choice = Choice(ranks, role, every)
        options = LogOptions(tail)
        found = job_logs(
            await self._cluster(), self.name, choice, options, follow=follow, notify=log.info
        )
        async with aclosing(found) as lines:
            async for line in lines:
                yield line

    async def plans(self) -> list[ScalePlan]:
        """Return its ScalePlans, the oldest first: their sources, changes and outcomes."""
        cluster = await self._cluster()
        return [
            read(plan, ScalePlan) for plan in await related.plans_of(cluster, await self.refresh())
        ]

    async def events(self) -> list[Event]:
        """Return the events of the job and its pods, the oldest first.

        Most clusters keep events for an hour.
        """
        return await related.events_of(await self._cluster(), await self.refresh())

    async def history(self) -> Records:
        """Return the throughput over time.

        The result is a pandas DataFrame if pandas is installed, else a list of records. Each sample
        has `time` (in a DataFrame a date in UTC, else seconds since the epoch), `round`,
        `world_size`, `step`, `samples_per_second` and the metrics, such as `loss`. If the job has
        no master, as after its end, the samples are those that its master has stored.

        Raises:
            MasterUnavailable: the job has no master now, and no answers are stored.
            MasterUnreachable: the master does not answer, and no answers are stored.
        """
        async with open_master_or_report(await self._cluster(), self.name) as master:
            return history_records(await master.get("History"))

    async def report(self) -> dict[str, Any]:
        """Return the job's report, also after its end.

        It has the outcome, steps, samples, goodput, hours, failures and metrics. Times are seconds
        since the epoch, durations are seconds. A negative goodput is unknown.

        Raises:
            MasterUnavailable: the job has no master now, and no answers are stored.
            MasterUnreachable: the master does not answer, and no answers are stored.
        """
        async with open_master_or_report(await self._cluster(), self.name) as master:
            return report_record(await master.get("Report"))

    @asynccontextmanager
    async def dashboard(self, *, port: int = 0) -> AsyncIterator[str]:
        """Serve the job's dashboard at a port of this machine until the block ends; yields its URL.

        Args:
            port: a port of 127.0.0.1; 0 for a free one.

        Raises:
            MasterUnavailable: the job has no master now, and no answers are stored.
            MasterUnreachable: the master does not answer, and no answers are stored.
            ClientError: the port is in use.
        """
        check_whole("port", port, 65_535)
        async with serve_dashboard(await self._cluster(), self.name, port=port) as url:
            yield url

    def __repr__(self) -> str:
        return job_text(type(self).__name__, self.last_seen)

    def _repr_html_(self) -> str:
        return job_html(self.last_seen)

    async def _change(self, change: SizeChange, *, wait: bool, seconds: float | None) -> str:
        cluster = await self._cluster()
        request = (await change_size(cluster, await self.refresh(), change)).request
        if wait and request is not None:
            await wait_for_end(cluster, request, seconds=seconds)
        return "" if request is None else request.name

    async def _cluster(self) -> Cluster:
        """Return the session with the job's own namespace."""
        session = await self._session()
        return Cluster(session.kube, self.namespace)


_GROUPS = ("metrics", "spent")
"""Fields of a sample that have several values. Metrics become fields of their own."""


def history_records(history: Any) -> Records:
    """Return the samples of a master's `History`.

    Each metric is a field. A metric with the name of another field is `metric.NAME`.
    """
    records = list(map(_record, history.samples))
    try:
        import pandas
    except ModuleNotFoundError:
        return records
    # The frame of a new job, which has no samples, has the same columns.
    fields = [
        field.name for field in history.DESCRIPTOR.fields_by_name["samples"].message_type.fields
    ]
    frame = pandas.DataFrame(
        records, columns=None if records else [name for name in fields if name not in _GROUPS]
    )
    return frame.assign(time=pandas.to_datetime(frame["time"], unit="s", utc=True))


def _record(sample: Any) -> dict[str, Any]:
    names = (field.name for field in sample.DESCRIPTOR.fields)
    fields = {name: getattr(sample, name) for name in names if name not in _GROUPS}
    metrics = dict(sample.metrics)
    return fields | {
        f"metric.{name}" if name in fields else name: value for name, value in metrics.items()
    }


def report_record(message: Any) -> dict[str, Any]:
    """Return a master's `Report` as dictionaries, lists and numbers, by the names of its fields."""
    record: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            record[field.name] = dict(value)
        elif field.message_type is None:
            record[field.name] = value
        elif field.is_repeated:
            record[field.name] = [report_record(each) for each in value]
        else:
            record[field.name] = report_record(value)
    return record
