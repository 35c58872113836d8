"""Kueue's queues and the Workloads of everybody, as last observed, for pools of ClusterQueues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elasticjob_operator.core.model.cluster_queue import ClusterQueue, LocalQueue, QueuedWorkload


@dataclass
class QueueStore:
    """ClusterQueues by name, LocalQueues by namespace and name, Workloads by UID.

    Attributes:
        is_listed: whether all three kinds were listed.
    """

    is_listed: Callable[[], bool] = lambda: False
    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    local_queues: dict[tuple[str, str], LocalQueue] = field(default_factory=dict)
    workloads: dict[str, QueuedWorkload] = field(default_factory=dict)

    def update_cluster_queue(self, before: ClusterQueue | None, after: ClusterQueue | None) -> None:
        """Cache a ClusterQueue that was added, changed or deleted (`after` None)."""
        if before is not None:
            self.cluster_queues.pop(before.metadata.name, None)
        if after is not None:
            self.cluster_queues[after.metadata.name] = after

    def update_local_queue(self, before: LocalQueue | None, after: LocalQueue | None) -> None:
        """Cache a LocalQueue that was added, changed or deleted (`after` None)."""
        if before is not None:
            self.local_queues.pop((before.metadata.namespace, before.metadata.name), None)
        if after is not None:
            self.local_queues[after.metadata.namespace, after.metadata.name] = after

    def update_workload(self, before: QueuedWorkload | None, after: QueuedWorkload | None) -> None:
        """Cache a Workload; one that was deleted (`after` None) or has finished is forgotten."""
        if before is not None:
            self.workloads.pop(before.metadata.uid, None)
        if after is not None and not after.finished:
            self.workloads[after.metadata.uid] = after

    def has_queue(self, namespace: str, cluster_queue: str) -> bool:
        """Return whether a LocalQueue of a namespace leads to a ClusterQueue."""
        return any(
            place[0] == namespace and queue.spec.cluster_queue == cluster_queue
            for place, queue in self.local_queues.items()
        )
