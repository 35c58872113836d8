"""Judges the creations of pods that the API server has refused, and for how long.

A refused name is free, and the next attempt uses it. A pod that is refused as invalid fails a job
that has not started: the template cannot change, and no other pod has shown it to be valid. A
policy, a quota or a missing PriorityClass may change, so the job waits, up to its deadline.
"""

from __future__ import annotations

from collections.abc import Collection

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.times import parse_time

from elasticjob_operator.core.conditions import (
    PODS_REFUSED,
    condition_of,
    with_condition,
    without_conditions,
)
from elasticjob_operator.core.member_counts import has_started, has_too_few_members
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Observed


def is_uncreated(observed: Observed, member: MemberKey, name: str) -> bool:
    """Return whether certainly no pod of this name, the latest of the member, was created."""
    found = observed.uncreated.get(member)
    return found is not None and found.name == name


def why_invalid(observed: Observed, member: MemberKey, name: str) -> str:
    """Return why the API server finds the pod of this name invalid; empty for a started job."""
    if has_started(observed.job.status) or not is_uncreated(observed, member, name):
        return ""
    return observed.uncreated[member].why_invalid


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
