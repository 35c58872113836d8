"""The answers of a job's master: by the calls of JobService, or those that it has stored.

The status in Kubernetes is a summary a few seconds old. Only the master has members, shards and the
world. After its end, its last answers are in a ConfigMap.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import grpc.aio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.times import format_time
from elasticjob_api.v1 import job_pb2, job_pb2_grpc
from google.protobuf.message import Message

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnavailable, MasterUnreachable, NoSuchObject
from elasticjob_client.jobs import end_of, get_job
from elasticjob_client.master import (
    CALL_SECONDS,
    MasterEndpoint,
    TokenRefused,
    reach_master,
    viewers_config_map,
    wait_for_starting_master,
)

_FIRST_SECONDS = 3.0
_Method = tuple[Callable[..., Any], Callable[..., Message]]
"""A method of JobService, and the class of its requests."""
_EARLIER = "its operator or its master was of an earlier version, which stores nothing"


class NotKnown(ClientError):
    """The master is of an earlier version, which does not know the query."""


class NoReport(ClientError):
    """No answers of the job's master are stored, or they cannot be read."""


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

    async def snapshot(self, status: job_pb2.JobStatus | None = None) -> job_pb2.StoredAnswers:
        """Return status, members, ranks and auto-scaling.

        `status` is an answer that a watch has just returned.
        """
        return job_pb2.StoredAnswers(
            status=status or await self.get("Status"),
            members=await self.get("Members"),
            ranks=await self.ranks(),
            autoscaling=await self.autoscaling(),
        )

    async def ranks(self) -> dict[str, int]:
        """Return the ranks in the present world by the pod's UID."""
        world = await self.get("World")
        return {member.pod_uid: rank for rank, member in enumerate(world.members)}

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


class StoredMaster:
    """The stored answers of a master, with the calls of `Master`.

    Attributes:
        answers: all stored answers.
        why: why the master itself does not answer, and the time of the answers, for people.
        is_last: the job has no master now; otherwise its master is unreachable.
    """

    def __init__(self, answers: job_pb2.StoredAnswers, why: str, *, is_last: bool) -> None:
        self.answers = answers
        self.why = why
        self.is_last = is_last

    async def get(self, name: str) -> Any:
        """Return the answer to `Get<name>` of JobService."""
        if name == "Progress":
            return self.answers.status.progress
        return getattr(self.answers, name.lower())

    async def watch(self, name: str) -> AsyncGenerator[Any, None]:
        """Yield the one answer."""
        yield await self.get(name)

    async def snapshot(self, _: job_pb2.JobStatus | None = None) -> job_pb2.StoredAnswers:
        """Return all answers; the report, which has the end of the job, only after that end."""
        found = job_pb2.StoredAnswers()
        found.CopyFrom(self.answers)
        if not self.is_last:
            found.ClearField("report")
        return found


@asynccontextmanager
async def open_master(
    cluster: Cluster, job: ElasticJob, *, address: str | None = None
) -> AsyncIterator[Master]:
    """Connect to a job's master, directly or through its pod; it has answered once.

    Args:
        cluster: its user has the rights that `reach_master` needs.
        job: the present job.
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


@asynccontextmanager
async def open_master_or_report(
    cluster: Cluster, job: str, *, address: str | None = None
) -> AsyncIterator[Master | StoredMaster]:
    """Connect to a job's master; if there is none or it is unreachable, use its stored answers.

    Args:
        cluster: its user may get the job and its ConfigMap for viewers.
        job: its name.
        address: `host:port` of the master; stored answers do not replace a master there.

    Raises:
        MasterUnavailable: the job has no master now, and no answers are stored.
        MasterUnreachable: the master does not answer, and no answers are stored.
        ClientError: as `open_master`.
    """
    async with AsyncExitStack() as stack:
        master: Master | StoredMaster
        if address is None:
            found = await wait_for_starting_master(cluster, job)
        else:
            found = await get_job(cluster, job)
        try:
            master = await stack.enter_async_context(open_master(cluster, found, address=address))
        except (MasterUnavailable, MasterUnreachable) as problem:
            if address is not None and isinstance(problem, MasterUnreachable):
                raise
            master = await stored_master(cluster, job, problem)
        yield master


async def stored_master(cluster: Cluster, job: str, problem: ClientError) -> StoredMaster:
    """Return the stored answers of a master that has not answered; if there are none, raise."""
    found = await get_job(cluster, job)
    try:
        answers = await stored_answers(cluster, found)
    except ClientError as none:
        if found.status.phase in ENDED and not found.status.master.incarnations:
            raise problem from none  # it never had a master that could have stored some
        raise type(problem)(f"{problem}; {none}") from problem
    if found.status.phase in ENDED and answers.autoscaling.waiting_for:
        answers.autoscaling.waiting_for = "nothing, as the job has ended"
    end = end_of(found) if found.status.phase in ENDED else str(problem)
    why = f"{end}; this is as of {format_time(answers.time)}"
    return StoredMaster(answers, why, is_last=isinstance(problem, MasterUnavailable))


async def stored_answers(
    cluster: Cluster, job: ElasticJob, *, only: Collection[str] = ()
) -> job_pb2.StoredAnswers:
    """Return the stored answers of a job's master, with the job's outcome from its status.

    `only`: the answers that are needed, by their JSON names; empty for all.

    Raises:
        NoReport: there are no answers of this job.
        ClientError: the user may not read them.
    """
    from elasticjob_api.answers import UnreadableAnswers, outcome, unpack  # slow: JSON of protobuf

    where = f"ConfigMap {cluster.namespace}/{names.query_config_map(job.metadata.name)}"
    try:
        found = await viewers_config_map(cluster, job.metadata.name)
    except NoSuchObject as error:
        raise NoReport(f"no answers are stored: {_EARLIER}") from error
    packed = (found.get("binaryData") or {}).get(names.REPORT_KEY)
    if packed is None:
        raise NoReport(f"no answers are stored: no master has run for some seconds, or {_EARLIER}")
    try:
        answers = unpack(
            base64.b64decode(packed, validate=True), only=only and ("jobUid", "time", *only)
        )
    except (UnreadableAnswers, binascii.Error) as error:
        raise NoReport(f"the answers in {where} cannot be read: {error}") from error
    if answers.job_uid != job.metadata.uid:
        raise NoReport(f"the answers in {where} are those of another job")
    answers.report.outcome.CopyFrom(outcome(job.status))
    return answers


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
