"""Replaces members on nodes that are about to be removed, or with a condition that the job names.

The operator creates a ScalePlan of source Disruption for them, which waits in the same queue as
every other plan. At most one such plan names a pod.

Members on a node that is leaving drain while there is time. A member on a node with a condition of
`replaceOnNodeConditions` leaves only when its replacement is ready on a node without such a
condition. So if the condition is wrong, or if all nodes have it, the job loses nothing: the plan
undoes the replacements, and no later plan names the same pods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from elasticjob_api.elasticjob import ElasticJob, NodeConditionMatch
from elasticjob_api.meta import Object
from elasticjob_api.scaleplan import (
    MAX_PODS_PER_PLAN,
    MAX_REASON_CHARACTERS,
    PodToCreate,
    PodToMigrate,
    PodToRemove,
    ScalePlan,
    ScalePlanSpec,
)
from elasticjob_api.times import time_or_none
from msgspec import convert
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import CreatePlan, shortest_wait
from elasticjob_operator.core.model.nodes import LEAVING_REASONS, NodeCondition
from elasticjob_operator.core.model.observed import Observed, owner_reference
from elasticjob_operator.core.model.plan import Indices, staying_indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import plan_manifests

_TAINT_MANAGER_REASON = "DeletionByTaintManager"
"""The reason of a DisruptionTarget condition that needs no plan, mostly because a node is lost.

Kubernetes deletes the pod at once, and the member restarts when it is deleted.
"""
_DIGEST_CHARACTERS = 10
"""Hexadecimal characters in a plan's name of the digest of its pods' UIDs."""


class _Toleration(Object, frozen=True):
    key: str | None = None
    operator: str | None = None


def plans_for_disruptions(observed: Observed) -> list[CreatePlan]:
    """Return the creation of a plan for members that must leave and that no plan names yet."""
    pods = observed.pods
    on_leaving_nodes = (
        pod
        for node in pods.by_node.keys() & observed.leaving_nodes.keys()
        for pod in pods.by_node[node].values()
    )
    affected = {
        pod.name: (pod, why)
        for pod in (*pods.disrupted.values(), *on_leaving_nodes)
        if (why := _disruption_reason(observed, pod)) is not None
    }
    if not affected:
        return []
    members = staying_indices(observed.job.status)
    must_leave = sorted(
        name for name, (pod, _) in affected.items() if is_running_member(pod, members)
    )
    known: set[str | None] = set()
    for plan in observed.plans:
        if plan.spec.source == "Disruption":
            known.update(entry.name for entry in plan.spec.remove_pods)
        if plan.status.completion_time is None:
            known.update(plan.status.draining_pods, plan.status.removed_pods)
    leaving = [affected[name] for name in must_leave if name not in known][:MAX_PODS_PER_PLAN]
    if not leaving:
        return []
    return [
        plan_for_pods(
            observed.job,
            "disruption",
            leaving,
            remove_pods=[PodToRemove(name=pod.name) for pod, _ in leaving],
            create_pods=[_replacement(observed.job, pod) for pod, _ in leaving],
        )
    ]


def plan_for_pods(
    job: ElasticJob, kind: str, affected: Sequence[tuple[Pod, str]], **change: Any
) -> CreatePlan:
    """Return the creation of a Disruption plan; its name derives from its pods, so it is unique.

    Args:
        job: the job that gets the plan.
        kind: a part of the name.
        affected: the pods, each with the reason.
        change: the fields of the plan's spec that remove or replace them.
    """
    uids = sorted(pod.metadata.uid for pod, _ in affected)
    digest = hashlib.sha256(" ".join(uids).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    reasons = dict.fromkeys(why for _, why in affected)
    reason = "; ".join(reasons)[:MAX_REASON_CHARACTERS]
    spec = ScalePlanSpec(job_name=job.metadata.name, source="Disruption", reason=reason, **change)
    name = f"{job.metadata.name}-{kind}-{digest}"
    return CreatePlan(plan_manifests.manifest(job, name, spec, owner_reference(job)))


def without_gone_pods(observed: Observed, plan: ScalePlan) -> ScalePlan:
    """Return a Disruption plan without pods that have ended, whose members restart anyway."""
    members = staying_indices(observed.job.status)
    entries = (*plan.spec.migrate_pods, *plan.spec.remove_pods)
    named = observed.pods.named({entry.name for entry in entries if entry.name is not None})
    staying = {pod.name for pod in named if is_running_member(pod, members)}
    migrating = [
        entry for entry in plan.spec.migrate_pods if entry.name is None or entry.name in staying
    ]
    plan = replace(plan, spec=replace(plan.spec, migrate_pods=migrating))
    if len(plan.spec.remove_pods) != len(plan.spec.create_pods):
        return plan  # a user's plan: the operator's own have a new pod for each that is removed
    pairs = list(zip(plan.spec.remove_pods, plan.spec.create_pods, strict=True))
    pairs = [(old, new) for old, new in pairs if old.name is None or old.name in staying]
    spec = replace(
        plan.spec, remove_pods=[old for old, _ in pairs], create_pods=[new for _, new in pairs]
    )
    return replace(plan, spec=spec)


def is_empty(plan: ScalePlan) -> bool:
    """Return whether nothing is left of a Disruption plan."""
    spec = plan.spec
    return not (
        spec.remove_pods or spec.create_pods or spec.migrate_pods or spec.replica_resource_specs
    )


def plans_to_keep(observed: Observed) -> frozenset[str]:
    """Return the names of plans that name an existing pod; without them it would get another."""
    return frozenset(
        plan.metadata.name
        for plan in observed.plans
        if not observed.pods.by_name.keys().isdisjoint(named_pods(plan))
    )


def named_pods(plan: ScalePlan) -> set[str]:
    """Return the pods that a Disruption plan removes or replaces; empty for another plan."""
    if plan.spec.source != "Disruption":
        return set()
    return {entry.name or "" for entry in (*plan.spec.remove_pods, *plan.spec.migrate_pods)}


def _disruption_reason(observed: Observed, pod: Pod) -> str | None:
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


def _replacement(job: ElasticJob, pod: Pod) -> PodToCreate:
    """Return a new member of the role with the resources of the old one."""
    had = job.status.replica_statuses[pod.role].resources_by_index.get(str(pod.index))
    return PodToCreate(role=pod.role, resource=dict(had or {}))


_TIMEOUT_SECONDS = 300
"""Seconds that replacements have to find a node, while other plans of the job wait."""
MAX_AVOIDED_NODES = 100


def plans_for_node_conditions(
    observed: Observed, now: float
) -> tuple[list[CreatePlan], float | None]:
    """Return the creation of a plan for the members to replace, and when others are due."""
    job = observed.job
    wanted = observed.job.spec.run_policy.replace_on_node_conditions
    if not wanted or not observed.node_conditions:
        return [], None
    members = staying_indices(job.status)
    known = _pods_with_plans(observed)
    affected: list[tuple[Pod, str]] = []
    wait = None
    for pod in sorted(observed.pods, key=lambda pod: pod.name):
        member = is_running_member(pod, members)
        if not member or pod.name in known or pod.spec.node_name in observed.leaving_nodes:
            continue
        for match in wanted:
            left = _seconds_left(observed.node_conditions.get(pod.spec.node_name, ()), match, now)
            if left is not None and left <= 0:
                affected.append((pod, f"node {pod.spec.node_name}: {match.type} is {match.status}"))
                break
            wait = shortest_wait(wait, left)
    if not affected:
        return [], wait
    affected = affected[:MAX_PODS_PER_PLAN]
    moves = [PodToMigrate(name=pod.name, avoid_node=True) for pod, _ in affected]
    plan = plan_for_pods(
        job, "condition", affected, migrate_pods=moves, timeout_seconds=_TIMEOUT_SECONDS
    )
    return [plan], wait


def nodes_to_avoid(observed: Observed, plan: ScalePlan) -> tuple[str, ...]:
    """Return the nodes on which no replacement of this plan may run."""
    if plan.spec.source != "Disruption" or not plan.spec.migrate_pods:
        return ()
    wanted = observed.job.spec.run_policy.replace_on_node_conditions
    bad = (
        name
        for name, conditions in observed.node_conditions.items()
        if any(_found(conditions, match) is not None for match in wanted)
    )
    return tuple(sorted(bad)[:MAX_AVOIDED_NODES])


def _found(
    conditions: tuple[NodeCondition, ...], match: NodeConditionMatch
) -> NodeCondition | None:
    return next(
        (each for each in conditions if (each.type, each.status) == (match.type, match.status)),
        None,
    )


def _seconds_left(
    conditions: tuple[NodeCondition, ...], match: NodeConditionMatch, now: float
) -> float | None:
    """Return how long a node must still have the condition; None if it does not have it."""
    found = _found(conditions, match)
    if found is None:
        return None
    since = time_or_none(found.last_transition_time) or 0.0  # the time is optional
    return since + match.seconds - now


def _pods_with_plans(observed: Observed) -> set[str]:
    """Return the pods that a Disruption plan names, or that any plan is draining."""
    found: set[str] = set()
    for plan in observed.plans:
        found |= named_pods(plan)
        if plan.status.completion_time is None:
            found.update(plan.status.draining_pods)
    return found
