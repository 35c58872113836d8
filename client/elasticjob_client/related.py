"""Lists the pods, ScalePlans and events of a job."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json, Object, ObjectMeta
from elasticjob_api.ownership import ELASTIC_JOB, may_be_of_job, names_owner
from elasticjob_api.pod_identity import member_of_name
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    EVENTS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from elasticjob_client.cluster import Cluster
from elasticjob_client.jobs import read


class Regarding(Object, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Event(Object, frozen=True):
    """An event of the cluster."""

    type: str = "Normal"
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_count: int = 0
    regarding: Regarding = Regarding()

    @property
    def time(self) -> str:
        """The time in UTC; events in the old form have only the time of the last occurrence."""
        return self.event_time or self.deprecated_last_timestamp or ""


def is_pod_of(job: ElasticJob, pod: ObjectMeta) -> bool:
    """Return whether a pod is the job's: by its controller, and by a name that the job has used.

    The labels alone prove nothing, because a user can give them to any pod. They must agree with
    the name.
    """
    name = job.metadata.name
    uid = job.metadata.uid
    member = member_of_name(name, pod.name)
    if member is None or not any(
        owner.controller and names_owner(owner, ELASTIC_JOB, name, uid)
        for owner in pod.owner_references
    ):
        return False
    if pod.labels.get(names.LABEL_ROLE) != member.role:
        return False
    if member.role == names.ROLE_MASTER:
        return member.incarnation < job.status.master.incarnations
    replica = job.status.replica_statuses.get(member.role)
    return (
        replica is not None
        and pod.labels.get(names.LABEL_INDEX) == str(member.index)
        and member.index <= replica.highest_index
        and member.incarnation <= replica.incarnations
    )


async def pods_of(cluster: Cluster, job: ElasticJob) -> list[Json]:
    """Return the pods of a job, the master's included, by role and index.

    Raises `ClientError`.
    """
    of_job = f"{names.LABEL_JOB_UID}={job.metadata.uid}"
    found = await cluster.list(PODS, label_selector=of_job)
    pods = (each for each in found if is_pod_of(job, read(each["metadata"], ObjectMeta)))
    return sorted(pods, key=_place)


async def plans_of(cluster: Cluster, job: ElasticJob) -> list[Json]:
    """Return the ScalePlans of a job as objects of the API server, the oldest first.

    Raises `ClientError`.
    """
    found = await cluster.list(SCALE_PLANS)
    plans = (plan for plan in found if plan["spec"].get("jobName") == job.metadata.name)
    return sorted(plans, key=_by_creation)


async def requests_without_plan(cluster: Cluster, job: ElasticJob) -> list[Json]:
    """Return the ScaleIns and ScaleOuts of a job that wait for their plan, or were refused one.

    They have `apiVersion` and `kind`; the oldest come first. Raises `ClientError`.
    """
    requests: list[Json] = []
    for resource in (SCALE_INS, SCALE_OUTS):
        found = await cluster.list(resource)
        requests += (
            of_kind(resource, each)
            for each in found
            if each["spec"].get("jobName") == job.metadata.name
            and may_be_of_job(
                read(each["metadata"], ObjectMeta), job.metadata.name, job.metadata.uid
            )
            and not (each.get("status") or {}).get("plan")
        )
    return sorted(requests, key=_by_creation)


async def events_of(cluster: Cluster, job: ElasticJob) -> list[Event]:
    """Return the events of a job and its pods, also of deleted pods, the oldest first.

    Raises `ClientError`.
    """
    return [event for event, _ in await _events(cluster, job)]


async def event_objects_of(cluster: Cluster, job: ElasticJob) -> list[Json]:
    """Return the events of `events_of` as objects of the API server. Raises `ClientError`."""
    return [found for _, found in await _events(cluster, job)]


def of_kind(resource: Resource, found: Json) -> Json:
    """Return an object with `apiVersion` and `kind`, which the API server omits in lists."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


async def _events(cluster: Cluster, job: ElasticJob) -> list[tuple[Event, Json]]:
    found = await cluster.list(EVENTS)
    roles = (*job.spec.replica_specs, names.ROLE_MASTER)
    prefixes = tuple(f"{job.metadata.name}-{role}-" for role in roles)

    def belongs(event: Event) -> bool:
        about = event.regarding
        if about.kind == ELASTIC_JOBS.kind:
            return about.uid == job.metadata.uid
        return (
            about.kind == PODS.kind
            and about.name.startswith(prefixes)
            and event.time >= _created(job)
        )

    events = [(read(each, Event), each) for each in found]
    chosen = [(event, each) for event, each in events if belongs(event)]
    return sorted(chosen, key=lambda pair: pair[0].time)


def _by_creation(found: Json) -> tuple[str, str]:
    return found["metadata"]["creationTimestamp"], found["metadata"]["name"]


def _created(job: ElasticJob) -> str:
    """Return the creation time of a job, in a form that is not greater than later event times."""
    return job.metadata.creation_timestamp.removesuffix("Z")


def _place(pod: Json) -> tuple[bool, str, int, str]:
    labels = pod["metadata"].get("labels") or {}
    role = labels.get(names.LABEL_ROLE, "")
    index = labels.get(names.LABEL_INDEX, "")
    return (
        role == names.ROLE_MASTER,
        role,
        int(index) if index.isdigit() else -1,
        pod["metadata"]["name"],
    )
