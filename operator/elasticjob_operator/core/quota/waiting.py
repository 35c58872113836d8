"""Decides whether Kueue or an ElasticPool lets a job have pods, and its next plan begin."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.times import time_or_none

from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.model.plan import ResolvedPlan
from elasticjob_operator.core.model.workload import Quota, Workload
from elasticjob_operator.core.quota.demand import demand_of, error_of, exceeds, satisfies

REPLACEMENT_SECONDS = 20.0
"""Seconds for which pods may run after their Workload was replaced by one that is not admitted."""
WAITS_FOR_ROOM = "waits for room"
"""How the message of a job or plan begins that waits for its pool."""
_REPLACED = "WorkloadSliceReplaced"
_MAX_TEXT_CHARACTERS = 300


def why_no_pods(observed: Observed, now: float) -> str:
    """Return why the job may have no pods now; empty if it may."""
    share = observed.share
    if share is not None and not share.members and (share.suspended or not observed.pods):
        suspended = f": suspended {share.suspended}" if share.suspended else ""
        return f"{WAITS_FOR_ROOM} in ElasticPool {share.pool}{suspended}"[:_MAX_TEXT_CHARACTERS]
    quota = observed.quota
    if quota is None or not quota.queue:
        return ""
    if error := error_of(observed.job):
        return error
    if quota.current is not None:
        missing = sorted(_missing_flavors(quota, quota.current))
        if missing and not observed.pods:
            return f"waits for ResourceFlavor {missing[0]}, which is not known yet"
        return ""
    may_continue = not quota.live or seconds_until_replaced(observed, now) is not None
    if observed.pods and may_continue:
        return ""
    refusal = f": {observed.last_refusal}" if observed.last_refusal and not quota.live else ""
    return waits_for(quota) + refusal


def seconds_until_replaced(observed: Observed, now: float) -> float | None:
    """Return how long the pods may run although no Workload is admitted; None without a limit.

    Kueue ends the replaced Workload a moment before it admits the replacement.
    """
    quota = observed.quota
    if quota is None or quota.current is not None:
        return None
    finished = (each.condition("Finished") for each in quota.workloads)
    ended = [each for each in finished if each is not None and each.reason == _REPLACED]
    last = max((time_or_none(each.last_transition_time) or 0.0 for each in ended), default=0.0)
    left = last + REPLACEMENT_SECONDS - now
    return min(left, REPLACEMENT_SECONDS) if left > 0 else None


def waits_for(quota: Quota) -> str:
    """Return the message of a job or plan that waits for quota, with Kueue's own message."""
    waiting = next((each for each in reversed(quota.live) if not each.admitted), None)
    text = f"waits for quota in queue {quota.queue}"
    if waiting is None:
        return text
    if not waiting.spec.active:
        text = (
            f"waits until Workload {waiting.metadata.name} is active again, in queue {quota.queue}"
        )
    evicted = waiting.condition("Evicted")
    reserved = waiting.condition("QuotaReserved")
    for said in (evicted if waiting.evicted and waiting.reserved else None, reserved):
        if said is not None and said.message and (said is evicted or said.status != "True"):
            return f"{text}: {said.message}"[:_MAX_TEXT_CHARACTERS]
    return f"{text}: for its admission checks" if waiting.reserved else text


def why_fewer_members(observed: Observed, status: ElasticJobStatus) -> str:
    """Return what the members wait for whose quota an admission in part has left out."""
    quota = observed.quota
    if quota is None or quota.current is None:
        return ""
    for role, replica in status.replica_statuses.items():
        most = quota.current.most_pods(role)
        if most is not None and most < replica.desired:
            return f"{most} of {replica.desired} members of {role}; the others: {waits_for(quota)}"
    return ""


def why_plan_waits(
    observed: Observed, status: ElasticJobStatus, defaults: Defaults, plan: ResolvedPlan
) -> str:
    """Return why a plan of a job with a queue or pool does not begin yet; empty if it may.

    A plan that needs no more than the job has never waits.
    """
    if why := _why_pool_waits(observed, plan):
        return why
    quota = observed.quota
    if quota is None or not quota.queue:
        return ""
    present = demand_of(observed, status, defaults)
    planned = demand_of(observed, status, defaults, plan=plan)
    if not exceeds(planned, present) or (
        quota.current is not None and satisfies(quota.current, planned)
    ):
        return ""
    return waits_for(quota)


def _why_pool_waits(observed: Observed, plan: ResolvedPlan) -> str:
    """Return why a plan that enlarges a job of a pool does not begin yet; empty if it may."""
    share = observed.share
    if share is None or share.role not in plan.targets:
        return ""
    size = len(plan.targets[share.role])
    most = observed.most_members(share.role)
    if most is None or size <= max(most, len(plan.before[share.role])):
        return ""
    return f"{WAITS_FOR_ROOM} for {size} members of {share.role} in ElasticPool {share.pool}"


def _missing_flavors(quota: Quota, workload: Workload) -> set[str]:
    assigned = {flavor for each in workload.assignments for flavor in each.flavors.values()}
    return assigned - quota.flavors.keys()
