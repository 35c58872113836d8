"""Judges whether a pod must leave its node.

Its own condition, or a taint or a condition of its node says so.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, NodeConditionMatch
from elasticjob_api.meta import Object
from elasticjob_api.times import time_or_none
from msgspec import convert

from elasticjob_operator.core.model.nodes import LEAVING_REASONS, NodeCondition
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices
from elasticjob_operator.core.model.pod import Pod

_TAINT_MANAGER_REASON = "DeletionByTaintManager"
"""The reason of a DisruptionTarget condition that needs no plan, mostly because a node is lost.

Kubernetes deletes the pod at once, and the member restarts when it is deleted.
"""


class _Toleration(Object, frozen=True):
    key: str | None = None
    operator: str | None = None


def disruption_reason(observed: Observed, pod: Pod) -> str | None:
    """Return why a pod must leave; None if it may stay."""
    condition = pod.condition("DisruptionTarget")
    if condition is not None and condition.reason != _TAINT_MANAGER_REASON:
        return f"DisruptionTarget: {condition.reason}"
    key = observed.leaving_nodes.get(pod.spec.node_name)
    if key is None or _tolerates(observed.job, pod.role, key):
        return None
    return f"node {pod.spec.node_name}: {LEAVING_REASONS[key]} ({key})"


def is_running_member(pod: Pod, members: Indices) -> bool:
    """Return whether the pod is a member's, and neither finished nor being deleted."""
    return not pod.terminating and not pod.finished and pod.index in members.get(pod.role, ())


def _tolerates(job: ElasticJob, role: str, key: str) -> bool:
    """Return whether pods of this role tolerate the taint, so that replacements may return."""
    if role not in job.spec.replica_specs:
        return False
    tolerations = (job.spec.replica_specs[role].template.get("spec") or {}).get("tolerations") or ()
    read = convert(tolerations, list[_Toleration])
    return any(each.key == key or (not each.key and each.operator == "Exists") for each in read)


def matching(
    conditions: tuple[NodeCondition, ...], match: NodeConditionMatch
) -> NodeCondition | None:
    """Return the condition of a node that a job's `replaceOnNodeConditions` names, if it has it."""
    return next(
        (each for each in conditions if (each.type, each.status) == (match.type, match.status)),
        None,
    )


def seconds_left(
    conditions: tuple[NodeCondition, ...], match: NodeConditionMatch, now: float
) -> float | None:
    """Return how long a node must still have the condition; None if it does not have it."""
    found = matching(conditions, match)
    if found is None:
        return None
    since = time_or_none(found.last_transition_time) or 0.0  # the time is optional
    return since + match.seconds - now
