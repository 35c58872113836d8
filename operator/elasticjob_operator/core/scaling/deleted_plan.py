"""Returns a job to a definite size after a user has deleted the plan that was being executed.

That is the size of its spec. If the job cannot have that size, the members that the deleted plan
has added leave all the same: pods that replace a member on a node with a problem may wait for ever
for another node.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.scaleplan import ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import Action, CreatePlan, EmitEvent
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused, current_indices
from elasticjob_operator.core.scaling import completion_status, plan_manifests, resize
from elasticjob_operator.core.scaling.resolve import resolve


def return_to_former_size(
    observed: Observed, status: ElasticJobStatus
) -> tuple[ElasticJobStatus, list[Action]]:
    """Return the job's new status, and the creation of a plan that restores the size.

    The new plan's name is stored in the job's status first, so that it is created once and executed
    before all others.
    """
    job = observed.job
    deleted = status.current_plan or ""
    sizes = sizes_to_return_to(observed)
    status = completion_status.with_resources_by_index(
        status, resize.unrecorded_resources(observed)
    )
    note = f"{deleted} was deleted while it was being executed"
    if not sizes:
        return replace(status, current_plan=None), [_cancelled(note)]
    status = _with_desired_sizes_of(status, job.status)
    name = deleted
    if not plan_manifests.is_return_plan(job, deleted):
        name = plan_manifests.return_plan_name(job)
    text = ", ".join(f"{role} {size}" for role, size in sizes.items())
    roles = job.spec.replica_specs
    is_of_spec = all(roles[role].size == size for role, size in sizes.items())
    whose = "of its spec" if is_of_spec else "it had"
    note += f"; the job goes back to {text}, the replicas {whose}"
    actions: list[Action] = [_cancelled(note)] if name != deleted else []
    actions.append(CreatePlan(plan_manifests.plan_for_sizes(job, sizes, name, note)))
    return replace(status, current_plan=name), actions


def sizes_to_return_to(observed: Observed) -> dict[str, int]:
    """Return the size of each role whose number of members changes; empty if none can change."""
    roles = observed.job.spec.replica_specs
    job = observed.job
    present = {
        role: len(indices) for role, indices in current_indices(job.status).items() if role in roles
    }
    of_spec = {role: roles[role].size for role in present if roles[role].size != present[role]}
    if _is_possible(observed, of_spec):
        return of_spec
    sizes = {}
    for role in present:
        # `desired` is still the size without the members that the deleted plan has added.
        for size in (roles[role].size, job.status.replica_statuses[role].desired):
            if size < present[role] and _is_possible(observed, {role: size}):
                sizes[role] = size
                break
    return sizes


def _with_desired_sizes_of(status: ElasticJobStatus, former: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status with the desired sizes of another one."""
    replicas = {
        role: replace(replica, desired=former.replica_statuses[role].desired)
        for role, replica in status.replica_statuses.items()
    }
    return replace(status, replica_statuses=replicas)


def _is_possible(observed: Observed, sizes: Mapping[str, int]) -> bool:
    job = observed.job
    plan = ScalePlan(metadata=job.metadata, spec=plan_manifests.spec_for_sizes(job, sizes, ""))
    try:
        resolve(job, observed.pods, plan)
    except PlanRefused:
        return False
    return True


def _cancelled(note: str) -> EmitEvent:
    return EmitEvent("ScalingCancelled", note, action="Scale", warning=True)
