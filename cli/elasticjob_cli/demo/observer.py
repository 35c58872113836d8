"""The demo's eyes: what the API server and the job's master tell, and a way to wait until something is so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.v1 import discovery_pb2, discovery_pb2_grpc, job_pb2, job_pb2_grpc
from elasticjob_kube.errors import KubeError
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS
from elasticjob_kube.session import Kube

from elasticjob_cli.demo.timeline import Timeline
from elasticjob_cli.master_client import NoMaster, master_access

T = TypeVar("T")


class NotObserved(Exception):
    """A step that should have happened was not seen in time."""


class _Terminated(Object, frozen=True):
    exit_code: int = 0


class _State(Object, frozen=True):
    terminated: _Terminated | None = None


class _Container(Object, frozen=True):
    name: str = ""
    state: _State = _State()


class _PodStatus(Object, frozen=True):
    phase: str = "Pending"
    container_statuses: list[_Container] = []


class PodView(Object, frozen=True):
    """What the demo reads of a pod."""

    metadata: ObjectMeta
    status: _PodStatus = _PodStatus()

    @property
    def exit_code(self) -> int | None:
        """Exit code of its training container, once it has ended."""
        states = [container.state.terminated for container in self.status.container_statuses]
        return states[0].exit_code if states and states[0] else None


@dataclass
class Sight:
    """One job as seen from outside. Every change is printed and wakes those who wait."""

    kube: Kube
    namespace: str
    name: str
    timeline: Timeline
    job: ElasticJob | None = None
    pods: dict[str, PodView] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    plans: dict[str, ScalePlan] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    status: job_pb2.JobStatus = field(default_factory=job_pb2.JobStatus)
    registered_at: dict[str, float] = field(default_factory=dict)
    listed_at: dict[str, float] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Look, for ever."""
        mine = {"namespace": self.namespace, "label_selector": f"{names.LABEL_JOB_NAME}={self.name}"}
        one = {"namespace": self.namespace, "field_selector": f"metadata.name={self.name}"}
        plans = {"namespace": self.namespace}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Informer(self.kube, PODS, PodView, on_change=self._pod, **mine).run())
            tasks.create_task(Informer(self.kube, ELASTIC_JOBS, ElasticJob, on_change=self._job, **one).run())
            tasks.create_task(Informer(self.kube, SCALE_PLANS, ScalePlan, on_change=self._plan, **plans).run())
            tasks.create_task(self._follow_master())

    async def until(self, what: str, seen: Callable[[], T | None], *, seconds: float) -> T:
        """Wait until `seen` returns something true, and return it.

        Raises:
            NotObserved: it did not within the time, or the job failed meanwhile.
        """
        deadline = time.monotonic() + seconds
        while not (found := seen()):
            if self.job is not None and self.job.status.phase == "Failed":
                raise NotObserved(f"{what}: the job failed: {self.job.status.message}")
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise NotObserved(f"{what}: not seen within {seconds:g} s") from None
        return found

    async def note_registrations(self) -> None:
        """Ask the master again and again who is registered, for ever: for the time from there to discovery."""
        access = await master_access(self.kube, self.namespace, self.name)
        async with access.channel() as channel:
            stub = job_pb2_grpc.JobServiceStub(channel)
            while True:
                found = await stub.GetMembers(job_pb2.GetMembersRequest(), metadata=access.metadata)
                for member in found.members:
                    self.registered_at.setdefault(member.pod_name, time.monotonic())
                await asyncio.sleep(0.01)

    def _pod(self, before: PodView | None, after: PodView | None) -> None:
        pod = after or before
        assert pod is not None
        name = pod.metadata.name
        if after is None:
            self.pods.pop(name, None)
            self.timeline.event(f"pod {name} is gone")
        else:
            self.pods[name] = after
            if before is None or before.status.phase != after.status.phase:
                self.timeline.event(f"pod {name} is {after.status.phase}")
        if pod.exit_code is not None and name not in self.ended:
            self.ended[name] = pod.exit_code
            self.timeline.event(f"pod {name}: the agent ended with exit code {pod.exit_code}")
        self._changed.set()

    def _job(self, before: ElasticJob | None, after: ElasticJob | None) -> None:
        self.job = after
        if after is not None and (before is None or before.status.phase != after.status.phase):
            self.timeline.event(f"job {self.name} is [bold]{after.status.phase or 'created'}[/]")
        self._changed.set()

    def _plan(self, before: ScalePlan | None, after: ScalePlan | None) -> None:
        if after is None or after.spec.job_name != self.name:
            return
        self.plans[after.metadata.name] = after
        if before is None:
            reason = f": {after.spec.reason}" if after.spec.reason else ""
            self.timeline.event(f"ScalePlan {after.metadata.name} by [bold]{after.spec.source}[/]{reason}")
        if after.status.phase and (before is None or before.status.phase != after.status.phase):
            self.timeline.event(f"ScalePlan {after.metadata.name} is {after.status.phase}")
        self._changed.set()

    async def _follow_master(self) -> None:
        """Ask the master itself; it may be away, and it comes and goes with the job."""
        while True:
            try:
                access = await master_access(self.kube, self.namespace, self.name)
            except (KubeError, NoMaster):
                await asyncio.sleep(0.1)
                continue
            try:
                async with access.channel() as channel, asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow_status(channel, access.metadata))
                    tasks.create_task(self._follow_hosts(channel, access.metadata))
            except* grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)

    async def _follow_status(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        stub = job_pb2_grpc.JobServiceStub(channel)
        async for status in stub.WatchStatus(job_pb2.WatchStatusRequest(), metadata=metadata):
            if (status.round, status.phase) != (self.status.round, self.status.phase):
                phase = job_pb2.JobPhase.Name(status.phase).removeprefix("JOB_PHASE_").lower()
                step = f", step {status.progress.step}" if status.progress.step else ""
                self.timeline.event(f"master: round {status.round}, {status.world_size} in the world, {phase}{step}")
            self.status = status
            self._changed.set()

    async def _follow_hosts(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        stub = discovery_pb2_grpc.DiscoveryServiceStub(channel)
        async for hosts in stub.WatchHosts(discovery_pb2.WatchHostsRequest(), metadata=metadata):
            self.hosts = tuple(f"{host.name}:{host.slots}" for host in hosts.hosts)
            for host in hosts.hosts:
                self.listed_at.setdefault(host.name, time.monotonic())
            self.timeline.event(f"discovery: {' '.join(self.hosts) or '(no host)'}")
            self._changed.set()
