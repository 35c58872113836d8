"""Members on nodes with a problem that the job names (`runPolicy.replaceOnNodeConditions`) are replaced on other nodes.

The operator creates a ScalePlan for them. A member leaves only when its replacement is ready, on a node without such a
problem. So where the condition is wrong, or all nodes have it, the job loses nothing: the replacements are given up,
and no pod is tried a second time.
"""

from __future__ import annotations

import hashlib

from elasticjob_api.elasticjob import NodeConditionMatch
from elasticjob_api.scaleplan import MAX_PODS_PER_PLAN, MAX_REASON_CHARACTERS, PodToMigrate, ScalePlan, ScalePlanSpec
from elasticjob_api.times import parse_time

from elasticjob_operator.core.model.actions import CreatePlan, shortest_wait
from elasticjob_operator.core.model.observed import NodeCondition, Observed, Pod, owner_reference
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.scaling import plan_manifests

_TIMEOUT_SECONDS = 300
"""Other plans of the job wait so long for replacements that find no node."""
_DIGEST_CHARACTERS = 10
MAX_AVOIDED_NODES = 100


def plans_for_node_conditions(observed: Observed, now: float) -> tuple[list[CreatePlan], float | None]:
    """Return the creation of a plan for the members to replace now, if any, and seconds until others are due."""
    job, wanted = observed.job, observed.job.spec.run_policy.replace_on_node_conditions
    if not wanted or not observed.node_conditions:
        return [], None
    members, known = current_indices(job.status), _pods_with_plans(observed)
    affected: list[tuple[Pod, str]] = []
    wait = None
    for pod in sorted(observed.pods, key=lambda pod: pod.name):
        gone = pod.terminating or pod.finished or pod.index not in members.get(pod.role, ())
        if gone or pod.name in known or pod.spec.node_name in observed.leaving_nodes:
            continue
        for match in wanted:
            left = _seconds_left(observed.node_conditions.get(pod.spec.node_name, ()), match, now)
            if left is not None and left <= 0:
                affected.append((pod, f"node {pod.spec.node_name}: {match.type} is {match.status}"))
                break
            wait = shortest_wait(wait, left)
    if not affected:
        return [], wait
    return [_plan(observed, affected[:MAX_PODS_PER_PLAN])], wait


def nodes_to_avoid(observed: Observed, plan: ScalePlan) -> tuple[str, ...]:
    """Return the nodes on which no replacement of this plan may run; empty for a plan that is for no such reason."""
    if plan.spec.source != "Disruption" or not plan.spec.migrate_pods:
        return ()
    wanted = observed.job.spec.run_policy.replace_on_node_conditions
    bad = (
        name
        for name, conditions in observed.node_conditions.items()
        if any((each.type, each.status) == (match.type, match.status) for each in conditions for match in wanted)
    )
    return tuple(sorted(bad)[:MAX_AVOIDED_NODES])


def _seconds_left(conditions: tuple[NodeCondition, ...], match: NodeConditionMatch, now: float) -> float | None:
    """Return for how long a node must still have the condition; None if it does not have it."""
    found = next((each for each in conditions if (each.type, each.status) == (match.type, match.status)), None)
    if found is None:
        return None
    try:
        since = parse_time(found.last_transition_time or "")
    except ValueError:
        since = 0.0  # whoever writes such a condition does not say
    return since + match.seconds - now


def _pods_with_plans(observed: Observed) -> set[str]:
    """Return the pods that a plan for their nodes has named, or that leave by any plan."""
    found = {
        name for plan in observed.plans if plan.status.completion_time is None for name in plan.status.draining_pods
    }
    for plan in observed.plans:
        if plan.spec.source == "Disruption":
            found.update(entry.name or "" for entry in (*plan.spec.remove_pods, *plan.spec.migrate_pods))
    return found


def _plan(observed: Observed, affected: list[tuple[Pod, str]]) -> CreatePlan:
    job, uids = observed.job, sorted(pod.metadata.uid for pod, _ in affected)
    digest = hashlib.sha256(" ".join(uids).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    spec = ScalePlanSpec(
        job_name=job.metadata.name,
        source="Disruption",
        reason="; ".join(dict.fromkeys(why for _, why in affected))[:MAX_REASON_CHARACTERS],
        migrate_pods=[PodToMigrate(name=pod.name, avoid_node=True) for pod, _ in affected],
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    name = f"{job.metadata.name}-condition-{digest}"
    return CreatePlan(plan_manifests.manifest(job, name, spec, owner_reference(job)))
