"""Queries a job's master by the calls of JobService, with errors for users.

The status in Kubernetes is a summary a few seconds old. Only the master has members, shards and the
world.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.v1 import agent_pb2, job_pb2, job_pb2_grpc
from google.protobuf.message import Message

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnreachable
from elasticjob_client.master import CALL_SECONDS, MasterEndpoint
from elasticjob_client.master_ways import TokenRefused, reach_master

_FIRST_SECONDS = 3.0
_Method = tuple[Callable[..., Any], Callable[..., Message]]
"""A method of JobService, and the class of its requests."""


class NotKnown(ClientError):
    """The master is of an earlier version, which does not know the query."""


@dataclass(frozen=True)
class JobSnapshot:
    """The state of a job that its master reported at one moment.

    Attributes:
        job_phase: of a job that has no master now, by its status in Kubernetes, such as Succeeded;
            the phase in `status` is that of its training when the master ended.
    """

    status: job_pb2.JobStatus
    members: tuple[agent_pb2.Member, ...]
    world: agent_pb2.World
    autoscaling: job_pb2.Autoscaling = field(default_factory=job_pb2.Autoscaling)
    job_phase: str = ""

    def rank(self, member: agent_pb2.Member) -> int | None:
        """Return the member's rank in the present world; None for a member outside of it."""
        uids = [other.pod_uid for other in self.world.members]
        return uids.index(member.pod_uid) if member.pod_uid in uids else None


class Master:
    """A connection to a job's master.

    Every query raises `MasterUnreachable` if the master does not answer, `NotKnown` if its version
    does not know the query, and `ClientError` if it refuses the query.
    """

    def __init__(self, endpoint: MasterEndpoint, channel: grpc.aio.Channel, job: str) -> None:
        """`job`: namespace and name, for errors."""
        self._endpoint = endpoint
        self._job = job
        stub = job_pb2_grpc.JobServiceStub(channel)
        self._get: Mapping[str, _Method] = {
            "Status": (stub.GetStatus, job_pb2.GetStatusRequest),
            "Members": (stub.GetMembers, job_pb2.GetMembersRequest),
            "Progress": (stub.GetProgress, job_pb2.GetProgressRequest),
            "History": (stub.GetHistory, job_pb2.GetHistoryRequest),
            "Plans": (stub.GetPlans, job_pb2.GetPlansRequest),
            "Autoscaling": (stub.GetAutoscaling, job_pb2.GetAutoscalingRequest),
            "World": (stub.GetWorld, job_pb2.GetWorldRequest),
            "Stacks": (stub.GetStacks, job_pb2.GetStacksRequest),
            "Report": (stub.GetReport, job_pb2.GetReportRequest),
        }
        self._watch: Mapping[str, _Method] = {
            "Status": (stub.WatchStatus, job_pb2.WatchStatusRequest),
            "Members": (stub.WatchMembers, job_pb2.WatchMembersRequest),
            "Progress": (stub.WatchProgress, job_pb2.WatchProgressRequest),
            "History": (stub.WatchHistory, job_pb2.WatchHistoryRequest),
            "Plans": (stub.WatchPlans, job_pb2.WatchPlansRequest),
            "Autoscaling": (stub.WatchAutoscaling, job_pb2.WatchAutoscalingRequest),
            "Report": (stub.WatchReport, job_pb2.WatchReportRequest),
        }

    async def get(self, name: str, *, seconds: float = CALL_SECONDS, **fields: Any) -> Any:
        """Return the answer to `Get<name>` of JobService with these fields: `GetProgress`."""
        call, request = self._get[name]
        with self._explained():
            return await call(request(**fields), metadata=self._endpoint.metadata, timeout=seconds)

    async def watch(self, name: str) -> AsyncGenerator[Any, None]:
        """Yield the answers to `Watch<name>` of JobService until this master ends."""
        call, request = self._watch[name]
        with self._explained():
            async for answer in call(request(), metadata=self._endpoint.metadata):
                yield answer

    async def snapshot(self, status: job_pb2.JobStatus | None = None) -> JobSnapshot:
        """Return status, members, world and auto-scaling.

        `status` is an answer that a watch has just returned.
        """
        if status is None:
            status = await self.get("Status")
        members = await self.get("Members")
        world = await self.get("World")
        return JobSnapshot(status, tuple(members.members), world, await self.autoscaling())

    async def autoscaling(self) -> job_pb2.Autoscaling:
        """Return the auto-scaler's knowledge; masters of earlier versions have none."""
        try:
            known: job_pb2.Autoscaling = await self.get("Autoscaling")
        except NotKnown:
            return job_pb2.Autoscaling()
        return known

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise _error(error, f"the master of {self._job} at {self._endpoint.address}") from error


@asynccontextmanager
async def open_master(
    cluster: Cluster, job: ElasticJob, *, address: str | None = None
) -> AsyncIterator[Master]:
    """Connect to a job's master, directly or through its pod; it has answered once.

    Args:
        cluster: its user has the rights that `reach_master` needs.
        job: as it is now.
        address: `host:port` to use in place of the address in the job's status.

    Raises:
        MasterUnavailable: the job has no master now.
        MasterUnreachable: the master does not answer.
        ClientError: the job's token cannot be read, or the master does not accept the token.
    """

    async def connect(endpoint: MasterEndpoint, attempt: AsyncExitStack) -> Master:
        channel = await attempt.enter_async_context(endpoint.channel())
        master = Master(endpoint, channel, f"{cluster.namespace}/{job.metadata.name}")
        await master.get("Progress", seconds=_FIRST_SECONDS)
        return master

    async with AsyncExitStack() as stack:
        yield await reach_master(cluster, job, connect, stack, address=address)


def _error(error: grpc.aio.AioRpcError, where: str) -> ClientError:
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return MasterUnreachable(f"{where} can't be reached: {error.details()}")
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return TokenRefused(
                f"{where} does not accept this job's token; does the address belong to another job?"
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return NotKnown(f"{where} does not know this query; it is of an earlier version")
    return ClientError(f"{where} answered {error.code().name}: {error.details()}")
