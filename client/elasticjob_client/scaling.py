"""Requests changes of a job's size; each request is an object whose status has its outcome."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import parse_indices
from elasticjob_api.job_sizes import size_error, why_not_scaled
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_api.plain_text import counted
from elasticjob_api.pod_identity import member_of_name
from elasticjob_api.scaleplan import FINISHED
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, JobEnded, WrongArgument
from elasticjob_client.jobs import get_job
from elasticjob_client.related import plans_of, requests_without_plan
from elasticjob_client.waiting import wait_until

_SIZE = re.compile(r"([+-]?)([0-9]{1,5})")
_ENDED = FINISHED | {"ScaleSucceeded", "ScaleFailed"}


@dataclass(frozen=True)
class SizeChange:
    """A change of a role: its new size, a number of members to add or remove, or pods to remove."""

    role: str
    replicas: int | None = None
    add: int = 0
    remove: int = 0
    pods: Sequence[str] = ()

    @property
    def resource(self) -> Resource:
        """The kind of the request."""
        if self.replicas is not None:
            return SCALE_PLANS
        return SCALE_OUTS if self.add else SCALE_INS

    def spec(self, job: str) -> dict[str, Any]:
        """Return the spec of the request."""
        if self.replicas is not None:
            return {
                "jobName": job,
                "replicaResourceSpecs": {self.role: {"replicas": self.replicas}},
            }
        if self.pods:
            return {"jobName": job, "role": self.role, "podNames": list(self.pods)}
        return {"jobName": job, "role": self.role, "count": self.add or self.remove}


@dataclass(frozen=True)
class ScaleRequest:
    """Kind and name of a request."""

    resource: Resource
    name: str


@dataclass(frozen=True)
class SizeOutcome:
    """What became of a wanted change of size.

    Attributes:
        request: the request that was made; None if none is needed.
        done: what was done, as a sentence without its end.
    """

    request: ScaleRequest | None
    done: str


def parse_size(text: str, *, role: str) -> SizeChange:
    """Return the change in a text such as 8, +2 or -1. Raises `WrongArgument`."""
    match = _SIZE.fullmatch(text)
    if match is None or (match[1] and int(match[2]) == 0):
        remedy = "give the new size (8), or how many more (+2) or less (-1)"
        raise WrongArgument(f"size {text[:40]!r} is not valid: {remedy}")
    sign = match[1]
    count = int(match[2])
    if not sign:
        return SizeChange(role, replicas=count)
    if sign == "+":
        return SizeChange(role, add=count)
    return SizeChange(role, remove=count)


def size_change(size: int | str, *, role: str) -> SizeChange:
    """Return the change in a number or text such as 8, "+2" or "-1". Raises `WrongArgument`."""
    if not isinstance(size, str) and (type(size) is not int or size < 0):
        # A negative number is a mistake of the program; as a text it would remove members.
        remedy = 'give a whole number, or a difference such as "+2" or "-1"'
        raise WrongArgument(f"size: {size!r:.40} is not valid; {remedy}")
    return parse_size(str(size), role=role)


def removal(pods: Sequence[str], *, role: str) -> SizeChange:
    """Return the change that removes these pods. Raises `WrongArgument`."""
    if not pods or not all(isinstance(pod, str) and pod for pod in pods):
        raise WrongArgument(f"pods: {pods!r:.80}: give the name of each pod to remove")
    return SizeChange(role, pods=pods)


async def change_size(cluster: Cluster, job: ElasticJob, change: SizeChange) -> SizeOutcome:
    """Request a change of size; set that for the resume of a suspended job; or find it done.

    Raises as `request_size`.
    """
    name = job.metadata.name
    if resumes_later(job):
        members = counted(await set_size_for_resume(cluster, job, change), change.role)
        return SizeOutcome(None, f"job {name} is suspended; it resumes with {members}")
    if await has_size(cluster, job, change):
        members = counted(change.replicas or 0, change.role)
        return SizeOutcome(None, f"job {name} has {members} already; nothing is requested")
    request = await request_size(cluster, name, change)
    return SizeOutcome(request, f"{request.resource.kind} {request.name} is requested")


async def request_size(cluster: Cluster, job: str, change: SizeChange) -> ScaleRequest:
    """Request a change of size, which follows earlier requests.

    Raises:
        NoSuchObject: there is no such job.
        JobEnded: the job has ended.
        ClientError: the operator would refuse the request, or the API server does.
    """
    found = await get_job(cluster, job)
    why = refusal(found, change)
    # The result of a difference depends on the requests that are carried out before it.
    if why and (change.replicas is not None or not await _has_unfinished_requests(cluster, found)):
        where = f"job {cluster.namespace}/{job}"
        kind = JobEnded if found.status.phase in ENDED else ClientError
        raise kind(f"{where}: {why}; nothing is requested")
    resource = change.resource
    body = {
        "apiVersion": names.API_VERSION,
        "kind": resource.kind,
        "metadata": {"generateName": f"{job}-"},
        "spec": change.spec(job),
    }
    kube = cluster.kube
    namespace = cluster.namespace
    made = await ask(
        cluster, resource, "", lambda: kube.create(resource, namespace, body), repeatable=False
    )
    return ScaleRequest(resource, made["metadata"]["name"])


def resumes_later(job: ElasticJob) -> bool:
    """Return whether the job is suspended by a user, so that it takes no requests now."""
    policy = job.spec.run_policy
    return policy.suspend and not policy.stop and job.status.phase not in ENDED


async def set_size_for_resume(cluster: Cluster, job: ElasticJob, change: SizeChange) -> int:
    """Set the size that a suspended job will have when it resumes; return it.

    Raises `ClientError` if the role cannot have this size.
    """
    role = change.role
    where = f"job {cluster.namespace}/{job.metadata.name}"
    if (spec := job.spec.replica_specs.get(role)) is None or change.pods:
        raise ClientError(f"{where}: {refusal(job, change)}; nothing is changed")
    size = spec.size + change.add - change.remove if change.replicas is None else change.replicas
    if why := size_error(job, role, size):
        raise ClientError(f"{where}: {why}; nothing is changed")
    body = {"spec": {"replicaSpecs": {role: {"replicas": size}}}}
    name = job.metadata.name
    await ask(
        cluster,
        ELASTIC_JOBS,
        name,
        lambda: cluster.kube.patch(ELASTIC_JOBS, cluster.namespace, name, body),
    )
    return size


async def has_size(cluster: Cluster, job: ElasticJob, change: SizeChange) -> bool:
    """Return whether a job has the requested size, and no earlier request changes it.

    Raises `ClientError`.
    """
    stored = job.status.replica_statuses.get(change.role)
    if stored is None or len(parse_indices(stored.indices)) != change.replicas:
        return False
    return not (refusal(job, change) or await _has_unfinished_requests(cluster, job))


def refusal(job: ElasticJob, change: SizeChange) -> str:
    """Return why the operator would refuse a change of the present job; empty if unknown."""
    role = change.role
    if role not in (roles := job.spec.replica_specs):
        return f"{role} is not a role of the job; it has {', '.join(sorted(roles))}"
    if why := why_not_scaled(job):
        return f"the job {why}"
    stored = job.status.replica_statuses.get(role)
    if stored is None:  # the operator has not handled the job yet
        return "" if change.replicas is None else size_error(job, role, change.replicas)
    members = parse_indices(stored.indices)
    for pod in change.pods:
        member = member_of_name(job.metadata.name, pod)
        if member is None or member.role != role or member.index not in members:
            return f"{pod} is not a member of role {role}; elasticjob describe lists the members"
    size = change.replicas
    if size is None:
        size = len(members) + change.add - (change.remove or len(set(change.pods)))
    return "" if size == len(members) else size_error(job, role, size)


async def _has_unfinished_requests(cluster: Cluster, job: ElasticJob) -> bool:
    requests = [*await plans_of(cluster, job), *await requests_without_plan(cluster, job)]
    return any((each.get("status") or {}).get("phase") not in _ENDED for each in requests)


async def wait_for_end(
    cluster: Cluster, request: ScaleRequest, *, seconds: float | None = None
) -> str:
    """Wait until a request has succeeded, and return its message.

    Raises:
        NoSuchObject: the request is deleted.
        NotInTime: the time is over; `seconds=None`: no bound.
        ClientError: the request has failed; the message says why.
    """

    def ended(found: Json) -> str | None:
        status = found.get("status") or {}
        phase = str(status.get("phase", ""))
        message = str(status.get("message", ""))
        if phase not in _ENDED:
            return None
        if phase not in ("Succeeded", "ScaleSucceeded"):
            raise ClientError(f"{request.resource.kind} {request.name}: {phase}: {message}")
        return message

    return await wait_until(cluster, request.resource, request.name, ended, seconds=seconds)
