"""Replaces members on nodes with a condition that the job names (`replaceOnNodeConditions`).

The operator creates a ScalePlan for them. A member leaves only when its replacement is ready on a
node without such a condition. So if the condition is wrong, or if all nodes have it, the job loses
nothing: the plan undoes the replacements, and no later plan names the same pods.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import NodeConditionMatch
from elasticjob_api.scaleplan import MAX_PODS_PER_PLAN, PodToMigrate, ScalePlan
from elasticjob_api.times import time_or_none

from elasticjob_operator.core.model.actions import CreatePlan, shortest_wait
from elasticjob_operator.core.model.nodes import NodeCondition
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import staying_indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import disruption

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
        member = disruption.is_running_member(pod, members)
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
    plan = disruption.plan_for_pods(
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
        found |= disruption.named_pods(plan)
        if plan.status.completion_time is None:
            found.update(plan.status.draining_pods)
    return found
