"""Judges the creations of pods that the API server has refused, and for how long.

A refused name is free, and the next attempt uses it. A pod that is refused as invalid fails a job
that has not started: the template cannot change, and no other pod has shown it to be valid. A
policy, a quota or a missing PriorityClass may change, so the job waits, up to its deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.job_sizes import has_started
from elasticjob_api.times import parse_time

from elasticjob_operator.core.conditions import (
    PODS_REFUSED,
    condition_of,
    with_condition,
    without_conditions,
)
from elasticjob_operator.core.member_counts import has_too_few_members
from elasticjob_operator.core.members.reconcile_result import JobFailure
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Quantities, with_plan_resources


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
