"""Draining.

Members leave host discovery and finish their step before their pods are deleted, up to a deadline.
The master sends the agents the command; an agent confirms by ending the pod's training container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus
from msgspec.structs import replace

from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.model.plan import Indices

MAX_NAMES_LISTED = 1000
"""Pods that one list of a plan's status names: the status of a plan for a very large job must fit
into one object.
"""
_EXACT_LIST_LENGTH = 10
"""Up to this length the list of draining pods is kept exact; a longer one is written again when
half has drained.
"""


def pods_to_drain(job: ElasticJob, pods: Iterable[Pod]) -> list[str]:
    """Return the names of the pods in which training still runs, so that it must end before they are deleted.

    A pod without an agent is not among them: nobody could tell it to drain, but its deletion does.
    """
    roles = job.spec.replica_specs
    return sorted(
        pod.name
        for pod in pods
        if pod.status.phase == "Running"
        and not pod.training_ended
        and not pod.terminating
        and roles[pod.role].managed
    )


def not_drained(observed: Observed, draining: Collection[str]) -> list[str]:
    """Return the names of those draining pods whose training has not ended."""
    return sorted(
        pod.name for pod in observed.pods if pod.name in draining and not pod.training_ended
    )


def with_members_of(observed: Observed, members: Indices, pods: Collection[str]) -> Indices:
    """Return members per role, with those of these pods."""
    added: dict[str, set[int]] = {role: set() for role in members}
    for pod in observed.pods:
        if pod.name in pods:
            added[pod.role].add(pod.index)
    return {role: indices | added[role] for role, indices in members.items()}


def drain_seconds(observed: Observed, plan: ScalePlan, roles: Iterable[str]) -> int:
    """Return for how many seconds members of these roles may drain."""
    if plan.spec.drain_seconds is not None:
        return plan.spec.drain_seconds
    return max((observed.job.spec.replica_specs[role].drain_seconds for role in roles), default=0)


def with_draining_if_worth_a_write(status: ScalePlanStatus, waiting: list[str]) -> ScalePlanStatus:
    """Return the plan's status with only `waiting` as draining if that is worth a write, else unchanged."""
    if len(waiting) > _EXACT_LIST_LENGTH and 2 * len(waiting) > len(status.draining_pods):
        return status
    return with_draining(status, waiting)


def with_draining(
    status: ScalePlanStatus, waiting: Collection[str], *, forced: Collection[str] = ()
) -> ScalePlanStatus:
    """Return the plan's status with only `waiting` as draining pods.

    The others become removed pods, or also forced.
    """
    gone = [name for name in status.draining_pods if name not in set(waiting)]
    return replace(
        status,
        draining_pods=sorted(waiting),
        removed_pods=limited([*status.removed_pods, *gone]),
        forced_pods=limited([*status.forced_pods, *forced]),
    )


def limited(names: Iterable[str]) -> list[str]:
    """Return names as a plan's status lists them.

    Sorted, each once, and at most `MAX_NAMES_LISTED`.
    """
    return sorted(set(names))[:MAX_NAMES_LISTED]
