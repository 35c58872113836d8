"""Finds the pods that a job waits for: refused ones, pending ones, and those not due yet.

A refused name is free, and the next attempt uses it. A pod that is refused as invalid fails a job
that has not started: the template cannot change, and no other pod has shown it to be valid. A
policy, a quota or a missing PriorityClass may change, so the job waits, up to its deadline.

Roles wait for others (`dependsOn`) at the start only, also after a suspension or a retry. Once the
job runs, members join and leave without waiting for each other. manifests/validation.py checks that
the order is possible.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.job_sizes import has_started
from elasticjob_api.times import parse_time

from elasticjob_operator.core import member_counts
from elasticjob_operator.core.conditions import (
    PODS_REFUSED,
    condition_of,
    with_condition,
    without_conditions,
)
from elasticjob_operator.core.member_counts import has_too_few_members
from elasticjob_operator.core.members.pod_reports import why_pending
from elasticjob_operator.core.members.reconcile_result import JobFailure
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Quantities, with_plan_resources
from elasticjob_operator.core.model.pod import Pod

_MAX_REASONS = 3
_MAX_REASON_CHARACTERS = 500


def invalid_template(
    observed: Observed,
    status: ElasticJobStatus,
    due: Collection[CreatePod],
    overrides: Mapping[str, Quantities],
) -> JobFailure | None:
    """Return why the job fails, since the API server finds one of the pods `due` invalid.

    Not in a job that has started, and not if a plan has set the pod's resources, of which
    `overrides` has those that a running plan is setting.
    """
    if has_started(status):
        return None
    for create in due:
        role, index = create.member
        found = observed.uncreated.get(create.member)
        if found is None or found.name != create.name or not found.why_invalid:
            continue
        refusal = f"the API server refuses it: {found.why_invalid}"
        if role == names.ROLE_MASTER:
            return JobFailure(f"spec.master: {refusal}", "Permanent")
        if not with_plan_resources(status, role, index, overrides.get(role, {})):
            return JobFailure(f"spec.replicaSpecs.{role}.template: {refusal}", "Permanent")
    return None


def with_refusal(
    observed: Observed, status: ElasticJobStatus, *, is_due: bool, now: float
) -> ElasticJobStatus:
    """Return the status with the condition that the API server refuses pods, and since when.

    It holds until no pod `is_due` to be created. So its time outlives the operator's process, which
    does not know what an earlier one was refused.
    """
    if not is_due:
        return without_conditions(observed.job, status, (PODS_REFUSED,), "Created", "", now)
    if not observed.last_refusal:
        return status
    return with_condition(
        observed.job, status, PODS_REFUSED, True, "Refused", observed.last_refusal, now
    )


def refused_for(
    observed: Observed, status: ElasticJobStatus, due: Collection[CreatePod], now: float
) -> tuple[str, float]:
    """Return a pod without which the job cannot train, and for how long it was refused.

    The name is empty if there is none.
    """
    condition = condition_of(status, PODS_REFUSED)
    if condition is None or condition.status != "True":
        return "", 0.0
    needed = (
        create.name
        for create in due
        if create.role == names.ROLE_MASTER
        or has_too_few_members(observed.job, status, create.role)
    )
    return next(needed, ""), now - parse_time(condition.last_transition_time)


def needed_pods(observed: Observed, status: ElasticJobStatus) -> list[Pod]:
    """Return the pending pods of the master, and of roles with too few ready members."""
    pending = observed.pods.pending
    needed = {
        role: role == names.ROLE_MASTER or has_too_few_members(observed.job, status, role)
        for role in {pod.role for pod in pending}
    }
    return [pod for pod in pending if needed[pod.role]]


def why_they_wait(observed: Observed, status: ElasticJobStatus) -> str:
    """Return the first reasons of the needed pods, each with one pod; empty if none is known."""
    reasons: dict[str, str] = {}
    for pod in sorted(needed_pods(observed, status), key=lambda pod: (pod.role, pod.index)):
        if reason := why_pending(pod)[:_MAX_REASON_CHARACTERS]:
            reasons.setdefault(reason, f"{pod.name}: {reason}")
        if len(reasons) == _MAX_REASONS:
            break
    return "; ".join(reasons.values())


def waiting_roles(observed: Observed, status: ElasticJobStatus) -> dict[str, list[str]]:
    """Return the roles that get no pods yet, each with the roles that it waits for.

    While something is refused and the master has no pod, that may be the master's pod. Members
    would only wait for it, and use up nodes and quota.
    """
    job = observed.job
    if observed.last_refusal and all(pod.finished for pod in observed.masters):
        return {role: [names.ROLE_MASTER] for role in job.spec.replica_specs}
    if not any(spec.depends_on for spec in job.spec.replica_specs.values()):
        return {}
    counted = member_counts.with_counts(observed, status)
    if has_started(counted):
        return {}
    waiting = {
        role: [
            needed
            for needed in spec.depends_on
            if member_counts.has_too_few_members(job, counted, needed)
        ]
        for role, spec in job.spec.replica_specs.items()
    }
    return {role: needed for role, needed in waiting.items() if needed}
