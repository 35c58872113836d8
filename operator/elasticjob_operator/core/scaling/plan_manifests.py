"""Makes the manifests of ScalePlans for ScaleIns, ScaleOuts and edits of `replicas`."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import PodToCreate, PodToRemove, RolePlan, ScalePlanSpec, Source
from msgspec import to_builtins

from elasticjob_operator.core.model.observed import (
    Observed,
    owner_reference,
    request_plan_name,
)
from elasticjob_operator.core.model.plan import PlanRefused
from elasticjob_operator.core.scaling import scripts
from elasticjob_operator.core.scaling.limits import check_bounds
from elasticjob_operator.core.scaling.member_selection import dispensable_members, members_to_remove
from elasticjob_operator.core.scaling.resolve import check_role, member_of

MAX_MEMBERS_PER_REQUEST = 1000
"""Members of a request at most: the bound of a ScalePlan's lists."""


def spec_plan_name(job: ElasticJob) -> str:
    """Return the name of the plan for an edit of the job's spec, one for each generation."""
    return f"{job.metadata.name}-spec-{job.metadata.generation}"


def role_plan_name(job: ElasticJob, role: str) -> str:
    """Return the name of the plan for a changed role that is not in the plan of its edit."""
    return f"{spec_plan_name(job)}-{role}"


def plan_for_request(observed: Observed, request: ScaleIn | ScaleOut) -> Json:
    """Return the manifest of the plan for a ScaleIn or ScaleOut, for the present members.

    Raises:
        PlanRefused: the request cannot be met; the message names the field of the ScaleIn or
        ScaleOut.
    """
    job = observed.job
    check_role(job, request.spec.role, "spec.role")
    scripts.check(job, request.spec)
    role = request.spec.role
    created: list[PodToCreate] = []
    removed: list[PodToRemove] = []
    if isinstance(request, ScaleOut):
        created = [PodToCreate(role=role)] * _count_to_add(job, request)
    else:
        indices = sorted(_indices_to_remove(observed, request))
        removed = [PodToRemove(role=role, index=index) for index in indices]
    source: Source = "ScaleOut" if isinstance(request, ScaleOut) else "ScaleIn"
    spec = ScalePlanSpec(
        job_name=job.metadata.name,
        source=source,
        reason=f"{source} {request.metadata.name}",
        create_pods=created,
        remove_pods=removed,
        timeout_seconds=request.spec.timeout_seconds,
        script=request.spec.script,
        env=request.spec.env,
    )
    return manifest(job, request_plan_name(request), spec, owner_reference(request))


def plan_for_edit(job: ElasticJob, edits: Mapping[str, int], name: str | None = None) -> Json:
    """Return the manifest of the plan for edited replicas, for as many roles as fit."""
    edits = dict(list(edits.items())[:MAX_ROLES])
    reason = f"spec.replicaSpecs was edited (generation {job.metadata.generation})"
    return plan_for_sizes(job, edits, name or spec_plan_name(job), reason)


def return_plan_name(job: ElasticJob) -> str:
    """Return a new name for the plan that follows a deleted plan."""
    return f"{job.metadata.name}-back-{job.metadata.resource_version}"


def is_return_plan(job: ElasticJob, name: str) -> bool:
    """Return whether this is the name of a plan that follows one that was deleted."""
    return name.startswith(f"{job.metadata.name}-back-")


def plan_for_sizes(job: ElasticJob, edits: Mapping[str, int], name: str, reason: str) -> Json:
    """Return the manifest of a plan that gives these roles the size their spec asks for."""
    return manifest(job, name, spec_for_sizes(job, edits, reason), owner_reference(job))


def spec_for_sizes(job: ElasticJob, sizes: Mapping[str, int], reason: str) -> ScalePlanSpec:
    """Return the spec of a plan that gives each role this size."""
    return ScalePlanSpec(
        job_name=job.metadata.name,
        source="Spec",
        reason=reason,
        replica_resource_specs={role: RolePlan(replicas=size) for role, size in sizes.items()},
    )


def edited_replicas(job: ElasticJob, status: ElasticJobStatus) -> dict[str, int]:
    """Return the replicas of the spec for the roles whose desired size differs from it."""
    return {
        role: spec.size
        for role, spec in job.spec.replica_specs.items()
        if role in status.replica_statuses and spec.size != status.replica_statuses[role].desired
    }


def _count_to_add(job: ElasticJob, request: ScaleOut) -> int:
    count = request.spec.count
    role = request.spec.role
    if not 1 <= count <= MAX_MEMBERS_PER_REQUEST:
        raise PlanRefused(f"spec.count: {count} must be from 1 to {MAX_MEMBERS_PER_REQUEST}")
    size = job.status.replica_statuses[role].desired
    prefix = f"spec.count: {count} more than {size}: "
    check_bounds(job, role, size + count, prefix=prefix)
    return count


def _indices_to_remove(observed: Observed, request: ScaleIn) -> IndexSet:
    job = observed.job
    role = request.spec.role
    count = request.spec.count
    pod_names = request.spec.pod_names
    if (count is None) == (not pod_names):
        raise PlanRefused("spec.count, spec.podNames: give either count or podNames")
    indices = parse_indices(job.status.replica_statuses[role].indices)
    if count is not None:
        if not 1 <= count <= MAX_MEMBERS_PER_REQUEST:
            raise PlanRefused(f"spec.count: {count} must be from 1 to {MAX_MEMBERS_PER_REQUEST}")
        prefix = f"spec.count: {count} fewer than {len(indices)}: "
        check_bounds(job, role, len(indices) - count, prefix=prefix)
        first = dispensable_members(job, role, observed.pods_of(role))
        return members_to_remove(indices, count, first=first)
    removed: set[int] = set()
    for position, name in enumerate(pod_names):
        field = f"spec.podNames[{position}]"
        pod_role, index = member_of(job, observed.pods, name, field)
        if pod_role != role:
            raise PlanRefused(f"{field}: {name!r} has role {pod_role}, not spec.role {role}")
        if index in removed:
            raise PlanRefused(f"{field}: {name!r} is named twice")
        removed.add(index)
    prefix = f"spec.podNames: {len(removed)} fewer than {len(indices)}: "
    check_bounds(job, role, len(indices) - len(removed), prefix=prefix)
    return IndexSet(removed)


def manifest(job: ElasticJob, name: str, spec: ScalePlanSpec, owner: Json) -> Json:
    """Return the manifest of a plan for the job."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ScalePlan",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {
                names.LABEL_JOB_NAME: job.metadata.name,
                names.LABEL_JOB_UID: job.metadata.uid,
            },
            "ownerReferences": [owner],
        },
        "spec": to_builtins(spec),
    }
