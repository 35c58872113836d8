"""Ends the plans and requests of a job that cannot be scaled any more, and deletes old plans."""

from __future__ import annotations

from elasticjob_api.scaleplan import FINISHED, PlanPhase

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling import (
    disruption,
    plan_manifests,
    plan_phases,
    request_status,
)


def end_plans_and_requests(observed: Observed, reason: str, now: float) -> list[Action]:
    """End all plans and requests that wait or run, because the job cannot be scaled any more.

    `reason` says why. The job first becomes the owner of those that have none, so that they do not
    outlive it.
    """
    adoptions = [
        adoption
        for item in (*observed.plans, *observed.requests.values())
        if item.metadata.deletion_timestamp is None
        for adoption in patches.adoption(observed.job, item)
    ]
    if adoptions:
        # These change resourceVersions, which the writes below have as a precondition.
        return list(adoptions)
    actions: list[Action] = []
    for item in observed.plans:
        if item.metadata.deletion_timestamp is None and item.status.phase not in FINISHED:
            phase: PlanPhase = "Cancelled" if item.status.start_time else "Failed"
            actions += plan_phases.end(item, phase, reason, now, pods=observed.pods)
    for request in request_status.unfinished_requests(observed):
        if request_status.plan_of(observed, request) is None:
            actions += request_status.finish(request, "ScaleFailed", reason, now)
    expired, _ = request_status.delete_expired(observed.requests.values(), now)
    return [
        *actions,
        *request_status.copy_plan_status(observed, now),
        *expired,
        *delete_old_plans(observed),
    ]


def delete_old_plans(observed: Observed) -> list[Action]:
    """Delete finished plans beyond the history limit.

    Kept are the plans of unfinished requests, the plans of the latest edit of the spec, disruption
    plans whose pods exist, and the current plan of the job's status, which would otherwise look as
    if a user had deleted it.
    """
    unfinished = {request.metadata.uid for request in request_status.unfinished_requests(observed)}
    job = observed.job
    of_spec = {plan_manifests.role_plan_name(job, role) for role in job.spec.replica_specs}
    of_spec.add(plan_manifests.spec_plan_name(job))
    kept = {*of_spec, job.status.current_plan, *disruption.plans_to_keep(observed)}
    finished = [
        item
        for item in observed.plans
        if item.status.phase in FINISHED
        and item.metadata.deletion_timestamp is None
        and item.metadata.name not in kept
        and not any(owner.uid in unfinished for owner in item.metadata.owner_references)
    ]
    return [*request_status.delete_oldest(finished, keep=job.spec.run_policy.plan_history_limit)]
