"""Reads the answers that a job's master has stored, which replace those of a missing master."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from elasticjob_api import names
from elasticjob_api.answers import UnreadableAnswers, outcome, unpack
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.times import format_time
from elasticjob_api.v1 import agent_pb2, job_pb2

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, MasterUnavailable, MasterUnreachable, NoSuchObject
from elasticjob_client.jobs import end_of, get_job
from elasticjob_client.master import viewers_config_map, wait_for_starting_master
from elasticjob_client.master_queries import JobSnapshot, Master, open_master

_MOST_RANKS = 20_000


class NoReport(ClientError):
    """No answers of the job's master are stored, or they cannot be read."""


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
        answers = self.answers
        match name:
            case "World":
                return _world(answers)
            case "Progress":
                return answers.status.progress
            case _:
                return getattr(answers, name.lower())

    async def watch(self, name: str) -> AsyncGenerator[Any, None]:
        """Yield the one answer."""
        yield await self.get(name)

    async def snapshot(self, status: job_pb2.JobStatus | None = None) -> JobSnapshot:
        """Return status, members, world and auto-scaling."""
        answers = self.answers
        members = tuple(answers.members.members)
        return JobSnapshot(
            status or answers.status,
            members,
            _world(answers),
            answers.autoscaling,
            job_phase=answers.report.outcome.phase if self.is_last else "",
        )


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


async def stored_answers(cluster: Cluster, job: ElasticJob) -> job_pb2.StoredAnswers:
    """Return the stored answers of a job's master, with the job's outcome from its status.

    Raises:
        NoReport: there are no answers of this job.
        ClientError: the user may not read them.
    """
    name = names.query_config_map(job.metadata.name)
    try:
        found = await viewers_config_map(cluster, job.metadata.name)
    except NoSuchObject as error:
        raise NoReport(f"no answers are stored: {_EARLIER}") from error
    packed = (found.get("binaryData") or {}).get(names.REPORT_KEY)
    if packed is None:
        raise NoReport(f"no answers are stored: no master has run for some seconds, or {_EARLIER}")
    try:
        answers = unpack(base64.b64decode(packed, validate=True))
    except (UnreadableAnswers, binascii.Error) as error:
        raise NoReport(
            f"the answers in ConfigMap {cluster.namespace}/{name} cannot be read: {error}"
        ) from error
    if answers.job_uid != job.metadata.uid:
        raise NoReport(
            f"the answers in ConfigMap {cluster.namespace}/{name} are those of another job"
        )
    answers.report.outcome.CopyFrom(outcome(job.status))
    return answers


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


_EARLIER = "its operator or its master was of an earlier version, which stores nothing"


def _world(answers: job_pb2.StoredAnswers) -> agent_pb2.World:
    """Return the last world; members that are not listed have no UID."""
    by_rank = {rank: uid for uid, rank in answers.ranks.items() if rank < _MOST_RANKS}
    size = max(by_rank, default=-1) + 1
    members = [agent_pb2.Member(pod_uid=by_rank.get(rank, "")) for rank in range(size)]
    return agent_pb2.World(round=answers.status.round, members=members)
