"""Members on a node that is about to go: drained and replaced elsewhere while there is still time for it.

A notice becomes a ScalePlan of source Disruption, so it waits in the same line as every other change of the job's
members and is recorded like one. A pod gets one notice in its life, however often it is seen again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Object, Resources
from elasticjob_api.scaleplan import PodToCreate, PodToRemove, ScalePlan, ScalePlanSpec
from msgspec import convert
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import CreatePlan
from elasticjob_operator.core.model.observed import Observed, Pod, owner_reference
from elasticjob_operator.core.model.plan import Indices, current_indices
from elasticjob_operator.core.scaling import plan_manifests

_BY_TAINT = "DeletionByTaintManager"
"""A condition that is no notice: the pod is deleted in the next moment, and mostly its node is lost already. Its rank
goes on when the pod has gone, not beside it."""
CORDONED = "node.kubernetes.io/unschedulable"
_DELETED = "metadata.deletionTimestamp"
WHY: Mapping[str, str] = {
    CORDONED: "the node is cordoned: `kubectl drain` begins with that",
    "node.kubernetes.io/out-of-service": "an administrator has declared the node shut down",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud has shut the machine down",
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is removing the node",
    "karpenter.sh/disrupted": "Karpenter is removing the node",
    "karpenter.sh/disruption": "Karpenter (before 1.0) is removing the node",
    "aws-node-termination-handler/spot-itn": "AWS takes the spot instance back in two minutes",
    "aws-node-termination-handler/rebalance-recommendation": "AWS expects to take the spot instance back",
    "aws-node-termination-handler/scheduled-maintenance": "AWS will stop or reboot the instance",
    "aws-node-termination-handler/asg-lifecycle-termination": "an AWS auto-scaling group is removing the instance",
    "cloud.google.com/impending-node-termination": "Google Cloud takes the machine back or maintains it",
    "remediator.kubernetes.azure.com/unschedulable": "Azure takes the spot machine back or repairs the node",
    _DELETED: "the node is being deleted",
}
"""What tells that a node is leaving: the key of a taint (or what stands for one), and what it means.

A node that is only not ready or unreachable is not among them: it may come back, and nobody there could drain.
"""
_MOST = 1000
"""Members in one plan; for the rest there is another one."""
_LONGEST_REASON = 1024


class Taint(Object, frozen=True):
    """What keeps pods off a node."""

    key: str


class NodeSpec(Object, frozen=True):
    """The part of a node's spec that tells whether it is leaving."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeMeta(Object, frozen=True):
    """The part of a node's metadata that is read."""

    name: str
    uid: str
    resource_version: str
    deletion_timestamp: str | None = None


class Node(Object, frozen=True):
    """A node, without all that makes one large."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()


class _Toleration(Object, frozen=True):
    key: str | None = None
    operator: str | None = None


def why_leaving(node: Node) -> str | None:
    """Return by which key of `WHY` a node is leaving; None while it stays."""
    if node.metadata.deletion_timestamp is not None:
        return _DELETED
    # A taint says more than the cordon that comes with it.
    told = [taint.key for taint in node.spec.taints if taint.key in WHY]
    return next((key for key in told if key != CORDONED), CORDONED if told or node.spec.unschedulable else None)


def notices(observed: Observed) -> list[CreatePlan]:
    """Return the plan for the members that must leave and of which no plan knows yet, if there are any."""
    told = {pod.name: (pod, why) for pod in observed.pods if (why := _why(observed, pod)) is not None}
    if not told:
        return []
    members = current_indices(observed.job.status)
    due = sorted(name for name, (pod, _) in told.items() if _stays(pod, members))
    known = _named(observed.plans)
    for plan in observed.plans:
        if plan.status.completion_time is None:
            known.update(plan.status.draining_pods, plan.status.removed_pods)
    doomed = [told[name] for name in due if name not in known][:_MOST]
    return [CreatePlan(_plan(observed.job, doomed))] if doomed else []


def at_its_turn(observed: Observed, plan: ScalePlan) -> ScalePlan:
    """Return a Disruption plan without the pods that have gone by themselves meanwhile: repair replaces those."""
    if len(plan.spec.remove_pods) != len(plan.spec.create_pods):
        return plan  # not one of ours
    members = current_indices(observed.job.status)
    staying = {pod.name for pod in observed.pods if _stays(pod, members)}
    pairs = list(zip(plan.spec.remove_pods, plan.spec.create_pods, strict=True))
    pairs = [(old, new) for old, new in pairs if old.name is None or old.name in staying]
    spec = replace(plan.spec, remove_pods=[old for old, _ in pairs], create_pods=[new for _, new in pairs])
    return replace(plan, spec=spec)


def is_over(plan: ScalePlan) -> bool:
    """Whether nothing is left of a Disruption plan at its turn."""
    spec = plan.spec
    return not (spec.remove_pods or spec.create_pods or spec.migrate_pods or spec.replica_resource_specs)


def still_needed(observed: Observed) -> frozenset[str]:
    """Return the plans that must be kept while a pod they name is there: without them it got another notice."""
    present = {pod.name for pod in observed.pods}
    return frozenset(plan.metadata.name for plan in observed.plans if not present.isdisjoint(_named([plan])))


def _why(observed: Observed, pod: Pod) -> str | None:
    """Return why a pod must leave; None if nothing has been told."""
    condition = pod.condition("DisruptionTarget")
    if condition is not None and condition.reason != _BY_TAINT:
        return f"DisruptionTarget: {condition.reason}"
    key = observed.leaving_nodes.get(pod.spec.node_name)
    if key is None or _tolerates(observed.job, pod.role, key):
        return None
    return f"node {pod.spec.node_name}: {WHY[key]} ({key})"


def _stays(pod: Pod, members: Indices) -> bool:
    """Whether the pod is that of a member, and neither finished nor being deleted."""
    return not pod.leaving and not pod.finished and pod.index in members.get(pod.role, ())


def _tolerates(job: ElasticJob, role: str, key: str) -> bool:
    """Whether the user wants this role's pods to stay under the taint.

    They could be scheduled there again, so that without this their replacements would be replaced without an end.
    """
    if role not in job.spec.replica_specs:
        return False
    tolerations = (job.spec.replica_specs[role].template.get("spec") or {}).get("tolerations") or ()
    read = convert(tolerations, list[_Toleration])
    return any(each.key == key or (not each.key and each.operator == "Exists") for each in read)


def _named(plans: Iterable[ScalePlan]) -> set[str]:
    return {wish.name or "" for plan in plans if plan.spec.source == "Disruption" for wish in plan.spec.remove_pods}


def _plan(job: ElasticJob, doomed: Sequence[tuple[Pod, str]]) -> dict[str, Any]:
    uids = sorted(pod.metadata.uid for pod, _ in doomed)
    digest = hashlib.sha256(" ".join(uids).encode()).hexdigest()[:10]
    reasons = dict.fromkeys(why for _, why in doomed)
    spec = ScalePlanSpec(
        job_name=job.metadata.name,
        source="Disruption",
        reason="; ".join(reasons)[:_LONGEST_REASON],
        remove_pods=[PodToRemove(name=pod.name) for pod, _ in doomed],
        create_pods=[_successor(job, pod) for pod, _ in doomed],
    )
    return plan_manifests.manifest(job, f"{job.metadata.name}-disruption-{digest}", spec, owner_reference(job))


def _successor(job: ElasticJob, pod: Pod) -> PodToCreate:
    """Return a new member of the role, with what was set for the old one, such as more memory after it ran out."""
    had = job.status.replica_statuses[pod.role].resources_by_index.get(str(pod.index))
    return PodToCreate(role=pod.role, resource=convert(had, Resources)) if had else PodToCreate(role=pod.role)
