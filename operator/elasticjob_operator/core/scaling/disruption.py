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

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import (
    MAX_PODS_PER_PLAN,
    MAX_REASON_CHARACTERS,
    PodToCreate,
    PodToMigrate,
    PodToRemove,
    ScalePlan,
    ScalePlanSpec,
)
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import CreatePlan, shortest_wait
from elasticjob_operator.core.model.observed import Observed, owner_reference
from elasticjob_operator.core.model.plan import staying_indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import plan_manifests
from elasticjob_operator.core.scaling.disruption_causes import (
    disruption_reason,
    is_running_member,
    matching,
    seconds_left,
)

_DISRUPTION = "disruption"
_CONDITION = "condition"
"""A part of the names of the two kinds of plans."""
_DIGEST_CHARACTERS = 10
"""Hexadecimal characters in a plan's name of the digest of its pods' UIDs."""


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
        if (why := disruption_reason(observed, pod)) is not None
    }
    if not affected:
        return []
    members = staying_indices(observed.job.status)
    must_leave = sorted(
        name for name, (pod, _) in affected.items() if is_running_member(pod, members)
    )
    known: set[str | None] = set()
    for plan in observed.plans:
        if plan.spec.source == "Disruption" and not _has_lapsed(plan):
            known.update(entry.name for entry in plan.spec.remove_pods)
        if plan.status.completion_time is None:
            known.update(plan.status.draining_pods, plan.status.removed_pods)
    leaving = [affected[name] for name in must_leave if name not in known][:MAX_PODS_PER_PLAN]
    if not leaving:
        return []
    return [
        _plan_for_pods(
            observed,
            _DISRUPTION,
            leaving,
            remove_pods=[PodToRemove(name=pod.name) for pod, _ in leaving],
            create_pods=[_replacement(observed.job, pod) for pod, _ in leaving],
        )
    ]


def _plan_for_pods(
    observed: Observed, kind: str, affected: Sequence[tuple[Pod, str]], **change: Any
) -> CreatePlan:
    """Return the creation of a Disruption plan.

    Its name derives from its pods, and from the plans about them whose cause had gone. So it is
    unique.

    Args:
        observed: the job that gets the plan, and its earlier plans.
        kind: a part of the name.
        affected: the pods, each with the reason.
        change: the fields of the plan's spec that remove or replace them.
    """
    job = observed.job
    uids = sorted(pod.metadata.uid for pod, _ in affected)
    named = {pod.name for pod, _ in affected}
    uids += sorted(
        plan.metadata.uid
        for plan in observed.plans
        if _has_lapsed(plan) and not named.isdisjoint(_entries(plan))
    )
    digest = hashlib.sha256(" ".join(uids).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    reasons = dict.fromkeys(why for _, why in affected)
    reason = "; ".join(reasons)[:MAX_REASON_CHARACTERS]
    spec = ScalePlanSpec(job_name=job.metadata.name, source="Disruption", reason=reason, **change)
    name = f"{job.metadata.name}-{kind}-{digest}"
    return CreatePlan(plan_manifests.manifest(job, name, spec, owner_reference(job)))


def as_needed_now(observed: Observed, plan: ScalePlan, now: float) -> ScalePlan:
    """Return a Disruption plan without the pods that need not leave any more.

    They have ended, so that their members restart anyway, or their node stays.
    """
    members = staying_indices(observed.job.status)
    named = list(observed.pods.named(_entries(plan)))
    needed = {pod.name for pod in named if _is_needed(observed, plan, pod, now)}
    staying = {pod.name for pod in named if is_running_member(pod, members)} & needed
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


def _is_needed(observed: Observed, plan: ScalePlan, pod: Pod, now: float) -> bool:
    """Return whether a plan of the operator still has a cause to remove or replace a pod."""
    node = pod.spec.node_name
    if plan.metadata.name.startswith(f"{observed.job.metadata.name}-{_DISRUPTION}-"):
        # A node that was not listed yet may be leaving.
        is_known = node in observed.node_labels or node in observed.leaving_nodes
        return not is_known or disruption_reason(observed, pod) is not None
    if plan.metadata.name.startswith(f"{observed.job.metadata.name}-{_CONDITION}-"):
        conditions = observed.node_conditions.get(node)
        lefts = (
            seconds_left(conditions or (), match, now)
            for match in observed.job.spec.run_policy.replace_on_node_conditions
        )
        return conditions is None or any(left is not None and left <= 0 for left in lefts)
    return True  # a user's plan


def needed_plan(observed: Observed, now: float) -> str:
    """Return the name of a Disruption plan that waits and is needed; empty if there is none."""
    waiting = (
        plan
        for plan in observed.plans
        if plan.spec.source == "Disruption"
        and plan.status.phase in (None, "Pending")
        and not is_empty(as_needed_now(observed, plan, now))
    )
    return next((plan.metadata.name for plan in waiting), "")


def why_empty(observed: Observed, plan: ScalePlan) -> str:
    """Return why nothing is left of a Disruption plan that does not begin."""
    members = staying_indices(observed.job.status)
    named = observed.pods.named(_entries(plan))
    if any(is_running_member(pod, members) for pod in named):
        return "its cause has gone before its turn; the pods stay"
    return "its pods are gone or leaving already; they are replaced"


def _has_lapsed(plan: ScalePlan) -> bool:
    """Return whether a plan has ended without having begun, so that its pods may get another."""
    return plan.status.phase == "Cancelled" and plan.status.start_time is None


def _entries(plan: ScalePlan) -> set[str]:
    entries = (*plan.spec.remove_pods, *plan.spec.migrate_pods)
    return {entry.name for entry in entries if entry.name is not None}


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
    if plan.spec.source != "Disruption" or _has_lapsed(plan):
        return set()
    return _entries(plan)


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
            left = seconds_left(observed.node_conditions.get(pod.spec.node_name, ()), match, now)
            if left is not None and left <= 0:
                affected.append((pod, f"node {pod.spec.node_name}: {match.type} is {match.status}"))
                break
            wait = shortest_wait(wait, left)
    if not affected:
        return [], wait
    affected = affected[:MAX_PODS_PER_PLAN]
    moves = [PodToMigrate(name=pod.name, avoid_node=True) for pod, _ in affected]
    plan = _plan_for_pods(
        observed, _CONDITION, affected, migrate_pods=moves, timeout_seconds=_TIMEOUT_SECONDS
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
        if any(matching(conditions, match) is not None for match in wanted)
    )
    return tuple(sorted(bad)[:MAX_AVOIDED_NODES])


def _pods_with_plans(observed: Observed) -> set[str]:
    """Return the pods that a Disruption plan names, or that any plan is draining."""
    found: set[str] = set()
    for plan in observed.plans:
        found |= named_pods(plan)
        if plan.status.completion_time is None:
            found.update(plan.status.draining_pods)
    return found
