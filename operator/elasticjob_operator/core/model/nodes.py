"""Defines a node, as far as decisions read it, and by which signs it is about to leave."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_api.meta import Object

CORDONED = "node.kubernetes.io/unschedulable"
_NODE_DELETED = "metadata.deletionTimestamp"
LEAVING_REASONS: Mapping[str, str] = {
    CORDONED: "the node is cordoned: `kubectl drain` begins with that",
    "node.kubernetes.io/out-of-service": "an administrator has declared the node shut down",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud has shut the machine down",
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is removing the node",
    "karpenter.sh/disrupted": "Karpenter is removing the node",
    "karpenter.sh/disruption": "Karpenter (before 1.0) is removing the node",
    "aws-node-termination-handler/spot-itn": "AWS takes the spot instance back in two minutes",
    "aws-node-termination-handler/rebalance-recommendation": "AWS expects to take the spot "
    "instance back",
    "aws-node-termination-handler/scheduled-maintenance": "AWS will stop or reboot the instance",
    "aws-node-termination-handler/asg-lifecycle-termination": "an AWS auto-scaling group is "
    "removing the instance",
    "cloud.google.com/impending-node-termination": "Google Cloud takes the machine back or "
    "maintains it",
    "remediator.kubernetes.azure.com/unschedulable": "Azure takes the spot machine back or repairs "
    "the node",
    _NODE_DELETED: "the node is being deleted",
}
"""The meaning of each taint (or of `metadata.deletionTimestamp`) by which a node is leaving.

A node that is not ready or unreachable is not leaving: it may come back, and its agents cannot
drain.
"""


class NodeCondition(Object, frozen=True):
    """A condition of a node, without the time of its last heartbeat."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class Taint(Object, frozen=True):
    """A taint of a node, by its key."""

    key: str


class NodeSpec(Object, frozen=True):
    """The part of a node's spec that shows whether it is leaving."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeMeta(Object, frozen=True):
    """The part of a node's metadata that is read."""

    name: str
    uid: str
    resource_version: str
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class NodeStatus(Object, frozen=True):
    """The part of a node's status that is read."""

    conditions: tuple[NodeCondition, ...] = ()
    allocatable: dict[str, int | str] = {}


class Node(Object, frozen=True):
    """A node, without the large parts of its metadata and status."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def leaving_reason(node: Node) -> str | None:
    """Return the key of `LEAVING_REASONS` by which a node is leaving; None if it stays."""
    if node.metadata.deletion_timestamp is not None:
        return _NODE_DELETED
    keys = [taint.key for taint in node.spec.taints if taint.key in LEAVING_REASONS]
    # A taint is more specific than the cordon that comes with it.
    return next(
        (key for key in keys if key != CORDONED),
        CORDONED if keys or node.spec.unschedulable else None,
    )
