"""Observes one job through the API server and its master, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.v1 import discovery_pb2, discovery_pb2_grpc, job_pb2, job_pb2_grpc
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import get_job
from elasticjob_client.master import MasterEndpoint, find_master
from elasticjob_client.members import JobPod
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS
from elasticjob_kube.session import Kube

from elasticjob_cli.dev.timeline import NotObserved, Timeline

T = TypeVar("T")
_Metadata = tuple[tuple[str, str], ...]
_Stream = Callable[[grpc.aio.Channel, _Metadata], Awaitable[None]]


@dataclass
class JobObserver:
    """The observed state of one job.

    It prints each change, and re-evaluates the conditions of `until`.

    Attributes:
        pods: the job's pods by name.
        ended: exit code of the training container by pod name, for every pod that has ended.
        plans: ScalePlans of the job by name.
        hosts: `name:slots` as host discovery lists them now.
        status: the status that the master last reported.
        report: the sum of the training that the master last reported.
        registered_at: `time.monotonic()` when the master first listed the member, by pod name.
        listed_at: `time.monotonic()` when host discovery first listed the member, by pod name.
    """

    kube: Kube
    namespace: str
    name: str
    timeline: Timeline
    job: ElasticJob | None = None
    pods: dict[str, JobPod] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    plans: dict[str, ScalePlan] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    status: job_pb2.JobStatus = field(default_factory=job_pb2.JobStatus)
    report: job_pb2.Report = field(default_factory=job_pb2.Report)
    registered_at: dict[str, float] = field(default_factory=dict)
    listed_at: dict[str, float] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Keep the observed state up to date until cancelled."""
        namespace = self.namespace
        of_job = f"{names.LABEL_JOB_NAME}={self.name}"
        this = f"metadata.name={self.name}"
        kube = self.kube
        informers: tuple[Informer[Any], ...] = (
            Informer(
                kube,
                PODS,
                JobPod,
                namespace=namespace,
                label_selector=of_job,
                on_change=self._on_pod,
            ),
            Informer(
                kube,
                ELASTIC_JOBS,
                ElasticJob,
                namespace=namespace,
                field_selector=this,
                on_change=self._on_job,
            ),
            Informer(kube, SCALE_PLANS, ScalePlan, namespace=namespace, on_change=self._on_plan),
        )
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for stream in (self._follow_status, self._follow_hosts, self._follow_report):
                tasks.create_task(self._follow(stream))

    async def until(self, what: str, condition: Callable[[], T | None], *, seconds: float) -> T:
        """Wait until `condition` returns a true value, and return that value.

        `what` describes it in errors.

        Raises:
            NotObserved: the time is over, or the job has failed.
        """
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            if self.job is not None and self.job.status.phase == "Failed":
                raise NotObserved(f"{what}: the job failed: {self.job.status.message}")
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise NotObserved(f"{what}: not seen within {seconds:g} s") from None
        return result

    async def record_registrations(self) -> None:
        """Poll the master's list of members until cancelled, to time their registration."""
        master = await self._find_master()
        async with master.channel() as channel:
            stub = job_pb2_grpc.JobServiceStub(channel)
            while True:
                answer = await stub.GetMembers(
                    job_pb2.GetMembersRequest(), metadata=master.metadata
                )
                for member in answer.members:
                    self.registered_at.setdefault(member.pod_name, time.monotonic())
                await asyncio.sleep(0.01)

    def _on_pod(self, before: JobPod | None, after: JobPod | None) -> None:
        pod = after or before
        assert pod is not None
        name = pod.metadata.name
        if after is None:
            self.pods.pop(name, None)
            self.timeline.event(f"pod {name} is deleted")
        else:
            self.pods[name] = after
            if before is None or before.status.phase != after.status.phase:
                self.timeline.event(f"pod {name} is {after.status.phase}")
        if pod.exit_code is not None and name not in self.ended:
            self.ended[name] = pod.exit_code
            self.timeline.event(f"pod {name}: the agent ended with exit code {pod.exit_code}")
        self._changed.set()

    def _on_job(self, before: ElasticJob | None, after: ElasticJob | None) -> None:
        self.job = after
        if after is not None and (before is None or before.status.phase != after.status.phase):
            self.timeline.event(f"job {self.name} is [bold]{after.status.phase or 'created'}[/]")
        self._changed.set()

    def _on_plan(self, before: ScalePlan | None, after: ScalePlan | None) -> None:
        if after is None or after.spec.job_name != self.name:
            return
        self.plans[after.metadata.name] = after
        if before is None:
            reason = f": {after.spec.reason}" if after.spec.reason else ""
            self.timeline.event(
                f"ScalePlan {after.metadata.name} by [bold]{after.spec.source}[/]{reason}"
            )
        if after.status.phase and (before is None or before.status.phase != after.status.phase):
            self.timeline.event(f"ScalePlan {after.metadata.name} is {after.status.phase}")
        self._changed.set()

    async def _find_master(self) -> MasterEndpoint:
        cluster = Cluster(self.kube, self.namespace)
        return await find_master(cluster, await get_job(cluster, self.name))

    async def _follow(self, stream: _Stream) -> None:
        """Follow a stream of the job's present and later masters."""
        while True:
            with suppress(ClientError, grpc.aio.AioRpcError):
                master = await self._find_master()
                async with master.channel() as channel:
                    await stream(channel, master.metadata)
            await asyncio.sleep(0.1)

    async def _follow_status(self, channel: grpc.aio.Channel, metadata: _Metadata) -> None:
        stub = job_pb2_grpc.JobServiceStub(channel)
        async for status in stub.WatchStatus(job_pb2.WatchStatusRequest(), metadata=metadata):
            if (status.round, status.phase) != (self.status.round, self.status.phase):
                phase = job_pb2.JobPhase.Name(status.phase).removeprefix("JOB_PHASE_").lower()
                step = f", step {status.progress.step}" if status.progress.step else ""
                self.timeline.event(
                    f"master: round {status.round}, {status.world_size} in the world, {phase}{step}"
                )
            self.status = status
            self._changed.set()

    async def _follow_report(self, channel: grpc.aio.Channel, metadata: _Metadata) -> None:
        stub = job_pb2_grpc.JobServiceStub(channel)
        async for report in stub.WatchReport(job_pb2.WatchReportRequest(), metadata=metadata):
            if report.standby != self.report.standby:
                self.timeline.event(f"master: {report.standby}")
            self.report = report
            self._changed.set()

    async def _follow_hosts(self, channel: grpc.aio.Channel, metadata: _Metadata) -> None:
        stub = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        async for hosts in stub.WatchHosts(discovery_pb2.WatchHostsRequest(), metadata=metadata):
            self.hosts = tuple(f"{host.name}:{host.slots}" for host in hosts.hosts)
            for host in hosts.hosts:
                self.listed_at.setdefault(host.name, time.monotonic())
            self.timeline.event(f"discovery: {' '.join(self.hosts) or '(no host)'}")
            self._changed.set()
