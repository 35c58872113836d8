"""Draining: members leave host discovery and finish their step before their pods are deleted, up to a deadline.

The master tells the agents; that a pod's training has ended is their answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus
from msgspec.structs import replace

from elasticjob_operator.core.model.observed import Observed, Pod

MAX_NAMES_LISTED = 1000
"""Pods that one list of a plan's status names: the status of a plan for a very large job must fit into one object."""
_EXACT_LIST_LENGTH = 10
"""Up to so many draining pods the list is kept exact; a longer one is renewed when half of it is done."""


def pods_to_drain(pods: Iterable[Pod]) -> list[str]:
    """Return the names of the pods in which training is to be ended gently."""
    return sorted(
        pod.name for pod in pods if pod.status.phase == "Running" and not pod.training_ended and not pod.terminating
    )


def not_drained(observed: Observed, draining: Collection[str]) -> list[str]:
    """Return the names of those draining pods whose training has not ended."""
    return sorted(pod.name for pod in observed.pods if pod.name in draining and not pod.training_ended)


def drain_seconds(observed: Observed, plan: ScalePlan, roles: Iterable[str]) -> int:
    """Return how long members of these roles may drain."""
    if plan.spec.drain_seconds is not None:
        return plan.spec.drain_seconds
    return max((observed.job.spec.replica_specs[role].drain_seconds for role in roles), default=0)


def with_draining_if_worth_a_write(status: ScalePlanStatus, waiting: list[str]) -> ScalePlanStatus:
    """Return the plan's status with only `waiting` as draining, if the difference is worth a write."""
    if len(waiting) > _EXACT_LIST_LENGTH and 2 * len(waiting) > len(status.draining_pods):
        return status
    return with_draining(status, waiting)


def with_draining(
    status: ScalePlanStatus, waiting: Collection[str], *, forced: Collection[str] = ()
) -> ScalePlanStatus:
    """Return the plan's status when of the draining pods only `waiting` are left; the others are removed."""
    gone = [name for name in status.draining_pods if name not in set(waiting)]
    return replace(
        status,
        draining_pods=sorted(waiting),
        removed_pods=limited([*status.removed_pods, *gone]),
        forced_pods=limited([*status.forced_pods, *forced]),
    )


def limited(names: Iterable[str]) -> list[str]:
    """Return names as a plan's status lists them."""
    return sorted(set(names))[:MAX_NAMES_LISTED]
