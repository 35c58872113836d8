"""Drains members: they leave host discovery and finish their step before their pods are deleted.

The master sends the command to the agents. An agent confirms by ending the training container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus
from msgspec.structs import replace

from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices
from elasticjob_operator.core.model.pod import Pod

MAX_NAMES_LISTED = 1000
"""Pods that a list of a plan's status names at most, so that a large plan fits into one object."""
_EXACT_LIST_LENGTH = 10
"""A longer list of draining pods is written again only when half of them have drained."""


def pods_to_drain(job: ElasticJob, pods: Iterable[Pod]) -> list[str]:
    """Return the names of pods whose training must end before they are deleted.

    A pod without an agent is not among them: it drains when it is deleted.
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
    pods = observed.pods.named(draining)
    return sorted(pod.name for pod in pods if not pod.training_ended)


def with_members_of(observed: Observed, members: Indices, pods: Collection[str]) -> Indices:
    """Return members per role, together with the members of these pods."""
    with_pods = dict(members)
    for pod in observed.pods.named(pods):
        with_pods[pod.role] = with_pods[pod.role].with_index(pod.index)
    return with_pods


def drain_seconds(observed: Observed, plan: ScalePlan, roles: Iterable[str]) -> int:
    """Return the seconds that members of these roles have to drain."""
    if plan.spec.drain_seconds is not None:
        return plan.spec.drain_seconds
    return max((observed.job.spec.replica_specs[role].drain_seconds for role in roles), default=0)


def with_draining_if_worth_a_write(status: ScalePlanStatus, waiting: list[str]) -> ScalePlanStatus:
    """Return the plan's status with only `waiting` as draining, if that is worth a write."""
    if len(waiting) > _EXACT_LIST_LENGTH and 2 * len(waiting) > len(status.draining_pods):
        return status
    return with_draining(status, waiting)


def with_draining(
    status: ScalePlanStatus, waiting: Collection[str], *, forced: Collection[str] = ()
) -> ScalePlanStatus:
    """Return the plan's status with only `waiting` as draining pods.

    The others become removed pods.
    """
    gone = [name for name in status.draining_pods if name not in set(waiting)]
    return replace(
        status,
        draining_pods=sorted(waiting),
        removed_pods=limited([*status.removed_pods, *gone]),
        forced_pods=limited([*status.forced_pods, *forced]),
    )


def limited(names: Iterable[str]) -> list[str]:
    """Return names for a plan's status: sorted, unique, and at most `MAX_NAMES_LISTED`."""
    return sorted(set(names))[:MAX_NAMES_LISTED]
